import json, os, signal, socket, time
launcher = socket.socket(socket.AF_UNIX)
launcher.connect(os.environ["TCH_PARALLEL_ELASTIC"])
lines = map(json.loads, launcher.makefile())
def finish(place):
    launcher.sendall(b"finished %d\n" % place["generation"])
    return next(lines)
place = next(lines)["place"]
rank, number = place["variables"]["RANK"], place["generation"]
