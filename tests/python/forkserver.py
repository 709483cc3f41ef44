"""Runs scripts in processes that are forked from this one, which has imported PyTorch: that import
takes longer than most of the scripts.

Each line of stdin is a request, a JSON object: the script's path, its arguments, directory and
environment, and the files for its stdout and stderr. Each line of stdout is an answer: how many the
request was, and the process that runs it ("pid") or, when it has ended, its wait status ("status").
"""

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import sys
import traceback

import torch.distributed.optim  # noqa: F401

# Not every script needs these, and not every machine has them.
for module in ["numpy", "safetensors.torch", "torchvision"]:
    with contextlib.suppress(Exception):
        importlib.import_module(module)

PR_SET_PDEATHSIG = 1


def serve():
    """Forks a process for each request. Returns the request in that process, None at the end of stdin."""
    # Wakes select() when a process ends.
    ended, wakes = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers = {}
    requests = 0
    while True:
        readable, _, _ = select.select([sys.stdin, ended], [], [])
        if ended in readable:
            os.read(ended, 4096)
            while numbers and (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                answer(number=numbers.pop(pid), status=status)
        if sys.stdin in readable:
            # Unbuffered, or select() would not see a request that has been read ahead.
            line = sys.stdin.buffer.raw.readline()
            if not line:
                return None
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(ended)
                os.close(wakes)
                return request
            numbers[pid] = requests
            answer(number=requests, pid=pid)
            requests += 1


def answer(**fields):
    os.write(1, (json.dumps(fields) + "\n").encode())


def become(request):
    """Makes this process what `python SCRIPT ARGUMENTS` would be, and ends it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream, path in enumerate([os.devnull, request["stdout"], request["stderr"]]):
        file = os.open(path, os.O_WRONLY if stream else os.O_RDONLY)
        os.dup2(file, stream)
        os.close(file)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["script"], *request["arguments"]]
    sys.path[0] = os.path.dirname(request["script"])
    status = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # An interpreter that ends properly visits every object that it has inherited: a second of work.
    os._exit(status)


if (request := serve()) is not None:
    become(request)
