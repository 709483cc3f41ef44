"""What lives on the GPU: bytes as PyTorch counts them, and checkpoints that change the device."""

import math
import shlex

from examination.commands import ROOT, python, rust
from examination.part import Part
from examination.results import events, expect, losses, tensors

TOPIC = "memory and checkpoints"

DIGITS = "--dataset mnist --no-augment --arch pyramidnet8_a6 --batch-size 32 --steps 5 --metrics metrics"

# The peak also counts what both languages free at their own time.
PEAK = 0.05


def number(file, name):
    return int.from_bytes(tensors(file)[name][2], "little")


def same_bytes(folder, _):
    files = [folder / side / "model.safetensors" for side in ["rust", "python"]]
    ours, theirs = (number(file, "memory_allocated") for file in files)
    expect(ours == theirs, f"memory_allocated is {ours} in Rust and {theirs} in Python")
    peaks = [number(file, "max_memory_allocated") for file in files]
    found = f"max_memory_allocated is {peaks[0]} in Rust and {peaks[1]} in Python"
    expect(math.isclose(*peaks, rel_tol=PEAK), found)
    return f"memory_allocated is {ours} in both; {found}"


def resumed(folder, processes):
    _, on_cpu, on_gpu, *evaluations = processes
    for process, epoch in [(on_cpu, 1), (on_gpu, 2)]:
        expected = f"(epoch {epoch}, step 0)"
        expect(expected in process.stdout(), f"{process.command.file} did not print {expected}")
        expect(all(map(math.isfinite, losses(process.folder))), "a loss is not finite")
    results = [events(process.folder, "validation")[0]["val_loss"] for process in evaluations]
    found = f"the same weights have loss {results[0]:.7g} on the GPU and {results[1]:.7g} on the CPU"
    expect(math.isclose(*results, rel_tol=1e-4), found)
    return found


def step_and_memory(folder, _):
    """Of DistributedDataParallel and of fully_shard, in both languages."""
    said = []
    for way in ["ddp", "fsdp"]:
        sides = [folder / f"{way}_{side}" for side in ["rust", "python"]]
        ours, theirs = (1000 * events(side, "end")[0]["step_seconds_median"] for side in sides)
        peaks = [events(side, "memory")[0]["max_memory_allocated"] >> 20 for side in sides]
        said.append(
            f"{way} {ours:.2f} and {theirs:.2f} ms a step in Rust and Python, {ours / theirs:.2f},"
            f" at most {peaks[0]} and {peaks[1]} MiB"
        )
    return "; ".join(said)


def gpt(way, side):
    text = shlex.quote(str(ROOT / "tests/data/pairs.txt"))
    sizes = "--n-layer 10 --n-embd 640 --n-head 8 --block-size 128 --batch-size 32"
    line = f"--text {text} --device cuda --metrics metrics {sizes}"
    return side("mingpt", line if way == "ddp" else f"{line} --fsdp", f"{way}_{side.__name__}")


def trained(device, epochs, folder, flags="", **options):
    line = f"{DIGITS} --device {device} --epochs {epochs} {flags}"
    return rust("ddp-imagenet", line, folder, **options)


def parts():
    models = "pyramidnet110_a48 model.safetensors cuda:0"
    on_cpu = {"uses_cuda": False}
    last = "../gpu_again/checkpoint.safetensors"
    checkpoints = [
        [trained("cuda", 1, "gpu")],
        [trained("cpu", 2, "cpu", "--resume ../gpu/checkpoint.safetensors", **on_cpu)],
        [trained("cuda", 3, "gpu_again", "--resume ../cpu/checkpoint.safetensors")],
        [
            trained("cuda", 3, "evaluated_on_gpu", f"--evaluate --resume {last}"),
            trained("cpu", 3, "evaluated_on_cpu", f"--evaluate --resume {last}", **on_cpu),
        ],
    ]
    return [
        Part(
            TOPIC,
            "bytes against torch.cuda.memory_allocated",
            [[rust("models", models), python("models", models)]],
            same_bytes,
        ),
        Part(TOPIC, "checkpoints from GPU to CPU and back", checkpoints, resumed),
        Part(
            TOPIC,
            "a GPT of 204 MiB on one rank over NCCL",
            [[gpt(way, side)] for way in ["ddp", "fsdp"] for side in [rust, python]],
            step_and_memory,
            is_alone=True,
            environment={},
        ),
    ]
