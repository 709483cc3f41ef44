"""Rank 0 opens its port and ends; rank 1 waits until nobody listens there any more."""

import os, socket, time
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    socket.create_server(address).accept()
    raise SystemExit(0)
heard = False
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    try:
        socket.create_connection(address, timeout=5).close()
        heard = True
    except ConnectionRefusedError:
        if heard:
            raise SystemExit(0)
    except ConnectionResetError:
        heard = True
    time.sleep(0.01)
raise SystemExit("the port is still open" if heard else "rank 0 never listened")
