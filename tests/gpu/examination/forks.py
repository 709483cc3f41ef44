"""Scripts in processes that are forked from one that has imported PyTorch already."""

import contextlib
import json
import os
import subprocess
import sys
import threading

from examination.commands import SCRIPTS


class Fork:
    """A process that the server has forked."""

    def __init__(self):
        self.pid = None
        self.status = None
        self.is_known = threading.Event()

    def poll(self):
        return None if self.status is None else os.waitstatus_to_exitcode(self.status)


class Forks:
    """The client of tests/python/forkserver.py, which ends with this process."""

    def __init__(self, environment):
        self.server = subprocess.Popen(
            [sys.executable, SCRIPTS / "forkserver.py"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.forks = []
        self.lock = threading.Lock()
        threading.Thread(target=self.listen, daemon=True).start()

    def start(self, script, arguments, directory, environment, stdout, stderr):
        request = {
            "script": str(script),
            "arguments": list(arguments),
            "directory": str(directory),
            "environment": environment,
            "stdout": str(stdout),
            "stderr": str(stderr),
        }
        stdout.touch()
        stderr.touch()
        fork = Fork()
        with self.lock:
            self.forks.append(fork)
            with contextlib.suppress(BrokenPipeError):
                self.server.stdin.write(json.dumps(request) + "\n")
                self.server.stdin.flush()
        fork.is_known.wait()
        if fork.pid is None:
            raise OSError(f"{sys.executable} cannot import PyTorch")
        return fork

    def listen(self):
        for line in self.server.stdout:
            answer = json.loads(line)
            fork = self.forks[answer["number"]]
            fork.pid = answer.get("pid", fork.pid)
            fork.status = answer.get("status", fork.status)
            fork.is_known.set()
        for fork in self.forks:
            # Whoever still waits for an answer gets none any more.
            fork.status = 1 if fork.status is None else fork.status
            fork.is_known.set()
