"""What goes wrong ends soon, with an error that says what to do."""

import os
import signal
import time

from examination.commands import ranks_by_hand, rust
from examination.part import Part
from examination.results import Failed, expect

TOPIC = "errors"

# How long the other rank may take to end after one was killed.
SECONDS = 30


def ends_with(*texts):
    """Every process ends with an exit code of its own, not by a signal, and its messages contain the texts."""

    def check(_, processes):
        for process in processes:
            expect(process.code > 0, f"{process.command.file} ended with {process.code}")
            said = process.stderr()
            for text in texts:
                reason = f"the error does not contain {text!r}: {process.last_words()}"
                expect(text in said, reason)
        return processes[0].last_words()

    return check


def kill_rank_1(processes, deadline):
    """Waits until both ranks train, and kills one."""
    logs = [process.folder / f"metrics/rank{rank}.jsonl" for rank, process in enumerate(processes)]
    while not all(log.exists() and '"loss"' in log.read_text() for log in logs):
        ended = [process for process in processes if process.poll() is not None]
        if ended:
            raise Failed(f"a rank ended early: {ended[0].last_words()}")
        if time.monotonic() > deadline:
            raise Failed("the ranks took no step")
        time.sleep(0.05)
    os.kill(processes[1].pid, signal.SIGKILL)
    processes[1].killed_at = time.monotonic()
    if not processes[0].wait(time.monotonic() + SECONDS):
        raise Failed(f"rank 0 still ran {SECONDS} s after rank 1 was killed")
    processes[0].seconds_alone = time.monotonic() - processes[1].killed_at


def rank_1_is_named(_, processes):
    survivor = processes[0]
    expect(survivor.code > 0, f"rank 0 ended with {survivor.code}")
    expect("rank 1" in survivor.stderr(), f"rank 1 is not named: {survivor.last_words()}")
    return f"after {survivor.seconds_alone:.1f} s rank 0 said: {survivor.last_words()}"


def killed(backend, **options):
    flags = f"--device cuda --backend {backend} --epochs 100000 --no-save --metrics metrics"
    ranks = [rust("ddp-mnist", flags, environment=environment) for environment in ranks_by_hand(2)]
    name = f"a rank is killed, over {backend}"
    return Part(TOPIC, name, [ranks], rank_1_is_named, may_fail=True, meanwhile=kill_rank_1, **options)


def parts():
    shared = [
        rust("ddp-mnist", "--device cuda --backend nccl --no-save", environment=environment)
        for environment in ranks_by_hand(2)
    ]
    # A batch of activations takes 68 GB, and there are many.
    huge = (
        "--devices cuda:0 --hidden 4096 --layers 2 --attn-heads 8 --seq-len 512 --batch-size 8192"
        " --corpus ../../corpus.txt --steps 1"
    )
    return [
        Part(
            TOPIC,
            "a GPU that is not there",
            [[rust("dp-custom-criterion", "--devices cuda:99 --steps 1")]],
            ends_with("cuda:99"),
            may_fail=True,
        ),
        Part(TOPIC, "two ranks over NCCL on one GPU", [shared], ends_with("Duplicate GPU detected"), may_fail=True),
        killed("gloo"),
        killed("nccl", gpus=2),
        Part(
            TOPIC,
            "out of memory",
            [[rust("dp-custom-criterion", huge)]],
            ends_with("out of memory"),
            may_fail=True,
            is_alone=True,
        ),
    ]
