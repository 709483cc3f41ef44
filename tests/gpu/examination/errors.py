"""What goes wrong ends soon, with an error that says what to do."""

import itertools
import json
import math
import os
import re
import signal
import time
from pathlib import Path

from examination.commands import PROGRAMS, ranks_by_hand, rust
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


def wait_for_steps(processes, deadline):
    """Waits until two ranks train."""
    logs = [processes[0].folder / f"metrics/rank{rank}.jsonl" for rank in range(2)]
    while not all(log.exists() and '"loss"' in log.read_text() for log in logs):
        ended = [process for process in processes if process.poll() is not None]
        if ended:
            raise Failed(f"a rank ended early: {ended[0].last_words()}")
        if time.monotonic() > deadline:
            raise Failed("the ranks took no step")
        time.sleep(0.05)


def kill_rank_1(processes, deadline):
    """Kills one of two ranks that train."""
    wait_for_steps(processes, deadline)
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


def replace_a_rank(processes, deadline):
    wait_for_steps(processes, deadline)
    threads = Path(f"/proc/{processes[0].pid}/task").iterdir()
    children = [child for thread in threads for child in (thread / "children").read_text().split()]
    # The launcher has a guard process as well.
    ranks = [child for child in children if Path(f"/proc/{child}/comm").read_text() == "ddp-mnist\n"]
    expect(len(ranks) == 2, f"the launcher has {len(ranks)} ranks, not 2")
    os.kill(int(ranks[1]), signal.SIGKILL)
    metrics = processes[0].folder / "metrics/rank0.jsonl"
    while len(changes(metrics)) < 3 and time.monotonic() < deadline and processes[0].poll() is None:
        time.sleep(0.1)
    if processes[0].poll() is None:
        os.kill(processes[0].pid, signal.SIGTERM)


def changes(metrics):
    """The numbers of ranks that took the steps, and how many steps each."""
    steps = [json.loads(line) for line in metrics.read_text().splitlines() if '"step"' in line and line[-1] == "}"]
    sizes = itertools.groupby(step["world_size"] for step in steps if step["event"] == "step")
    return [(size, len(list(run))) for size, run in sizes]


def is_replaced(_, processes):
    said = "restart 1 of 3: 1 rank goes on, and another one takes its place"
    expect(said in processes[0].stderr(), f"no rank was replaced: {processes[0].last_words()}")
    metrics = processes[0].folder / "metrics/rank0.jsonl"
    seen = changes(metrics)
    expect([size for size, _ in seen] == [2, 1, 2], f"the steps were taken by {seen}, not by 2, 1 and 2 ranks")
    losses = [float(loss) for loss in re.findall('"loss":([^,}]*)', metrics.read_text())]
    # Incomplete sums are NaN, or make the loss rise.
    reason = f"the loss went from {losses[0]} to {losses[-1]}"
    expect(all(map(math.isfinite, losses)) and losses[-1] < losses[0], reason)
    return f"{seen[1][1]} steps by one rank alone; {reason}"


def replaced(backend, **options):
    flags = f"--device cuda --backend {backend} --epochs 100000 --no-save --metrics metrics --elastic"
    job = rust("launch", f"-n 2 --max-restarts 3 {PROGRAMS / 'ddp-mnist'} {flags}")
    name = f"a rank is replaced, over {backend}"
    return Part(TOPIC, name, [[job]], is_replaced, may_fail=True, meanwhile=replace_a_rank, **options)


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
        replaced("gloo"),
        replaced("nccl", gpus=2),
        Part(
            TOPIC,
            "out of memory",
            [[rust("dp-custom-criterion", huge)]],
            ends_with("out of memory"),
            may_fail=True,
            is_alone=True,
        ),
    ]
