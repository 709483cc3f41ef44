"""The folder's programs and scripts as commands, and the processes that run them."""

import itertools
import os
import shlex
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "bin"
SCRIPTS = ROOT / "tests/python"

# Through these a launcher tells a process its rank; a part sets its own.
RANKS = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]

# Products are computed in full 32 bits and in a fixed order, so that results can be compared bit by bit.
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0"}


@dataclass(frozen=True)
class Command:
    """A program or script, in a folder below that of its part."""

    name: str
    arguments: list
    folder: str
    is_script: bool
    environment: dict = field(default_factory=dict)
    uses_cuda: bool = True

    def __str__(self):
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return shlex.join([*variables, self.file, *self.arguments])

    @property
    def file(self):
        return f"tests/python/{self.name}.py" if self.is_script else f"bin/{self.name}"


def rust(name, line, folder="rust", **options):
    """A program of bin/, with these flags."""
    return Command(name, shlex.split(line), folder, is_script=False, **options)


def python(name, line, folder="python", **options):
    """A script of tests/python/, with these flags."""
    return Command(name, shlex.split(line), folder, is_script=True, **options)


def ranks_by_hand(ranks):
    """The variables of ranks that no launcher starts."""
    port = free_port()
    return [
        dict(zip(RANKS, map(str, [number, number, ranks, ranks, "127.0.0.1", port])))
        for number in range(ranks)
    ]


PORTS = itertools.count(20_000 + os.getpid() % 9_000)


def free_port():
    """Below the ports that Linux gives out by itself."""
    for port in PORTS:
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Process:
    """A command that runs. Its output goes to files in its folder."""

    def __init__(self, command, folder, machine, environment):
        self.command = command
        self.folder = folder / command.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        number = len(list(self.folder.glob("*.out")))
        self.out = self.folder / f"{number}.out"
        self.err = self.folder / f"{number}.err"
        # Now, so that the next process here gets another number.
        self.out.touch()
        self.begun = time.monotonic()
        self.code = None
        everything = {**machine.environment, **environment, **command.environment}
        if command.is_script:
            script = SCRIPTS / f"{command.name}.py"
            self.child = machine.forks.start(
                script, command.arguments, self.folder, everything, self.out, self.err
            )
        else:
            with open(self.out, "wb") as out, open(self.err, "wb") as err:
                self.child = subprocess.Popen(
                    [PROGRAMS / command.name, *command.arguments],
                    cwd=self.folder,
                    env=everything,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        self.pid = self.child.pid

    def poll(self):
        """The exit code, negative for a signal; None as long as it runs."""
        if self.code is None:
            self.code = self.child.poll()
        return self.code

    def kill(self):
        """Ends it at once, with the ranks that it has started."""
        if self.poll() is None:
            try:
                if self.command.is_script:
                    os.kill(self.pid, signal.SIGKILL)
                else:
                    os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            while self.poll() is None:
                time.sleep(0.01)

    def wait(self, deadline):
        """Whether it has ended by then; it is killed otherwise."""
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        in_time = self.poll() is not None
        self.kill()
        return in_time

    def stdout(self):
        return self.out.read_text(errors="replace")

    def stderr(self):
        return self.err.read_text(errors="replace")

    def last_words(self):
        """The line that says most about a failure."""
        lines = [line.strip() for line in self.stderr().splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error") or "Error" in line]
        return (errors or lines or ["it printed no error"])[-1][:300]
