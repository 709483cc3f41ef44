"""How long a step takes in Rust and in Python, and how busy the GPU is.

Both sides print a line every ten steps. The time between these lines, seen from outside, is that of their
steps, with what each does besides: the Python originals read the loss from the GPU in every step, as their
tutorials do, and Rust only for the lines; Python trains on one batch that stays in memory, and Rust's loader
makes its batches.
"""

import subprocess
import threading
import time
from dataclasses import dataclass

from examination.commands import Process, python, rust
from examination.part import Part, examine
from examination.results import Failed, NotPossible

TOPIC = "step times"

STEPS_PER_LINE = 10
# At the start, kernels are loaded and buckets of gradients rebuilt.
WARM_UP_LINES = 3
# How long steps are measured, and how long a program may take until it has measured.
SECONDS = 6
LIMIT = 60

IMAGES = "--dataset synthetic --no-augment --epochs 1 --steps 100000 --device cuda -j 8 --print-freq 10"
BERT = (
    "--hidden 768 --layers 12 --attn-heads 12 --seq-len 128 --batch-size 64 --epochs 1000 --log-freq 10"
    " --corpus ../../corpus.txt"
)


@dataclass
class Time:
    """Of a step."""

    milliseconds: float
    # In per cent; None without nvidia-smi.
    busy: float


@dataclass
class Row:
    name: str
    rust: Time
    python: Time


def rows():
    """The name of a row, and its commands."""
    for name, line in [
        ("PyramidNet, 128 x 32 x 32 pixels", f"{IMAGES} --arch pyramidnet --image-size 32 -b 128"),
        ("ResNet-50, 64 x 224 x 224 pixels", f"{IMAGES} --arch resnet50 --image-size 224 -b 64"),
    ]:
        for precision, flags in [("f32", line), ("bf16", f"{line} --amp bf16 --channels-last")]:
            yield f"{name}, {precision}", rust("ddp-imagenet", flags), python("imagenet", flags)
    for precision, flags in [("f32", BERT), ("bf16", f"{BERT} --amp bf16")]:
        yield (
            f"BERT-base, 64 x 128 tokens, {precision}",
            rust("dp-custom-criterion", f"{flags} --devices cuda:0"),
            python("bert", f"{flags} --device cuda"),
        )


def part(name, commands):
    """A row as a part, so that it is reported like the others."""
    return Part(TOPIC, name, [commands], None, torchvision="ResNet" in name, environment={})


def parts():
    return [part(name, commands) for name, *commands in rows()]


def measure_row(part, machine, folder, deadline):
    """The result of a row, and its times."""
    times = []

    def run(part, machine, folder, deadline, processes):
        for command in part.steps[0]:
            if command.is_script and part.torchvision and not machine.torchvision:
                raise NotPossible("requires torchvision for Python, which is not installed")
            processes.append(Process(command, folder, machine, part.variables(machine)))
            times.append(measure(processes[-1], machine, deadline))
        return ""

    result = examine(part, machine, folder, deadline, run)
    return result, Row(part.name, *(times + [None, None])[:2])


def measure(process, machine, deadline):
    """Watches the lines of a program that trains, and kills it after a few seconds of them."""
    limit = min(deadline, time.monotonic() + LIMIT)
    # When how many lines had come.
    seen = [(0, WARM_UP_LINES)]
    with Busy(machine.first_gpu) as busy:
        while len(seen) < 4 or time.monotonic() - seen[1][0] < SECONDS:
            if process.poll() is not None:
                if "out of memory" in process.stderr():
                    raise NotPossible(f"too little memory on the GPU for {process.command.file}")
                raise Failed(f"{process.command.file} ended with {process.code}: {process.last_words()}")
            if time.monotonic() > limit and limit == deadline:
                raise NotPossible("no time is left")
            if time.monotonic() > limit:
                raise NotPossible(f"{process.command.file} had not printed enough lines after {LIMIT} s")
            time.sleep(0.002)
            lines = process.stdout().count("Epoch: [") + process.stdout().count("'iter':")
            if lines > seen[-1][1]:
                seen.append((time.monotonic(), lines))
        process.kill()
        (begin, first), (end, last) = seen[1], seen[-1]
        steps = (last - first) * STEPS_PER_LINE
        return Time((end - begin) / steps * 1000, busy.mean(begin, end))


class Busy:
    """How busy the GPU is, in per cent, as nvidia-smi says five times a second."""

    COMMAND = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits --loop-ms=200 --id="

    def __init__(self, gpu):
        self.gpu = gpu
        self.samples = []
        self.process = None

    def __enter__(self):
        try:
            command = (self.COMMAND + self.gpu).split()
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return self
        threading.Thread(target=self.listen, daemon=True).start()
        return self

    def listen(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.samples.append((time.monotonic(), int(line)))

    def mean(self, begin, end):
        found = [share for at, share in self.samples if begin <= at <= end]
        return sum(found) / len(found) if found else None

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait()


def table(rows):
    """The rows as lines of text."""
    yield f"{'':39}{'Rust':>10}{'Python':>10}{'Rust/Python':>13}   GPU busy: Rust  Python"
    for row in rows:
        sides = [row.rust, row.python]
        times = "".join(f"{side.milliseconds:7.2f} ms" if side else f"{'-':>10}" for side in sides)
        ratio = f"{row.rust.milliseconds / row.python.milliseconds:13.2f}" if all(sides) else f"{'-':>13}"
        busy = [f"{side.busy:.0f} %" if side and side.busy is not None else "-" for side in sides]
        yield f"{row.name:39}{times}{ratio}{busy[0]:>17}{busy[1]:>8}"
    if not any(side and side.busy is not None for row in rows for side in [row.rust, row.python]):
        yield "How busy the GPU is, is not possible here: nvidia-smi is missing."
