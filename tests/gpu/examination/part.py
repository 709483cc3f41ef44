"""A part of the examination: commands that run one after the other or at once, and what they must show."""

import itertools
import re
import time
from dataclasses import dataclass, field
from typing import Callable

from examination.commands import DETERMINISTIC, Process
from examination.results import Failed, NotPossible, expect

# How programs and scripts end without a GPU, at their first call of CUDA.
NO_GPU = re.compile(
    r"no GPU|No CUDA GPUs|NVIDIA driver|without the feature `cuda`|--features cuda|not compiled with CUDA"
)

PASSED, FAILED, NOT_POSSIBLE = "passed", "failed", "not possible here"


@dataclass
class Part:
    """`steps` come one after the other; the commands of a step run at once. All of them must end with code
    0, unless `may_fail`. `check` takes the part's folder and its processes, raises Failed or NotPossible, and
    returns what it has found."""

    topic: str
    name: str
    steps: list
    check: Callable
    may_fail: bool = False
    # Takes the processes of the first step while they run.
    meanwhile: Callable = None
    # Whether nothing else may run on the GPU.
    is_alone: bool = False
    gpus: int = 1
    torchvision: bool = False
    seconds: int = 100
    environment: dict = field(default_factory=lambda: dict(DETERMINISTIC))

    def variables(self, machine):
        """Its processes see one GPU, unless it requires several."""
        one = {"CUDA_VISIBLE_DEVICES": machine.first_gpu} if self.gpus == 1 else {}
        return {**self.environment, **one}


@dataclass
class Result:
    part: Part
    outcome: str
    reason: str
    seconds: float
    processes: list


def examine(part, machine, folder, deadline, run=None):
    """Runs a part to its end, whatever happens. `run` takes the same and a list for its processes, and returns what
    it has found."""
    begun = time.monotonic()
    processes = []
    try:
        outcome, reason = PASSED, (run or run_steps)(part, machine, folder, deadline, processes)
    except Failed as failed:
        outcome, reason = FAILED, str(failed)
    except NotPossible as impossible:
        outcome, reason = NOT_POSSIBLE, str(impossible)
    except Exception as error:
        outcome, reason = FAILED, f"{type(error).__name__}: {error}"
    for process in processes:
        process.kill()
    return Result(part, outcome, reason, time.monotonic() - begun, processes)


def run_steps(part, machine, folder, deadline, processes):
    possible(part, machine, deadline)
    limit = min(deadline, time.monotonic() + part.seconds)
    for number, commands in enumerate(part.steps):
        step = []
        for command in commands:
            step.append(Process(command, folder, machine, part.variables(machine)))
            processes.append(step[-1])
        if number == 0 and part.meanwhile:
            part.meanwhile(step, limit)
        for process in step:
            if not process.wait(limit):
                if limit == deadline:
                    raise NotPossible(f"no time is left, {process.command.file} still ran")
                raise Failed(f"{process.command.file} ran for more than {part.seconds} s")
        for process in step:
            if process.code != 0 and not part.may_fail:
                raise Failed(f"{process.command.file} ended with {process.code}: {process.last_words()}")
    return part.check(folder, processes)


def possible(part, machine, deadline):
    if len(machine.gpus) < part.gpus:
        raise NotPossible(f"requires {part.gpus} GPUs, and this machine has {len(machine.gpus)}")
    if part.torchvision and not machine.torchvision:
        raise NotPossible("requires torchvision for Python, which is not installed")
    if deadline - time.monotonic() < 10:
        raise NotPossible("no time is left")


def examine_dry(part, machine, folder, deadline):
    """Starts each command of a part, and expects that it ends at its first call of CUDA."""
    dry = [command for command in itertools.chain(*part.steps) if command.uses_cuda]

    def check(_, processes):
        for process in processes:
            said = process.stderr()
            expect(process.code != 0, f"{process.command.file} ended with 0 without a GPU")
            reason = f"{process.command.file} ended before its first call of CUDA: {process.last_words()}"
            expect(NO_GPU.search(said), reason)
        return f"{len(processes)} commands"

    topic, name, needs = part.topic, part.name, part.torchvision
    part = Part(topic, name, [dry], check, may_fail=True, gpus=0, torchvision=needs)
    return examine(part, machine, folder, deadline)
