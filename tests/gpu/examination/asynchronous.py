"""Asynchronous updates whose gradients are computed on the GPU; θ stays on the CPU."""

import math
import shlex

from examination.commands import PROGRAMS, rust
from examination.part import Part
from examination.results import events, expect, losses

TOPIC = "asynchronous updates"

# Steps in which the roundings of two devices have not grown yet.
STEPS = 10
# After an epoch, sync-allreduce and async-ps name nine digits of ten.
ACCURACY = 0.8


def trained(folder, _):
    """The first losses are those of the CPU, and every method learns."""
    on_gpu, on_cpu = losses(folder / "gpu")[:STEPS], losses(folder / "cpu")[:STEPS]
    for step, pair in enumerate(zip(on_gpu, on_cpu)):
        found = f"the losses of step {step} are {pair[0]:.9g} on the GPU and {pair[1]:.9g} on the CPU"
        expect(math.isclose(*pair, rel_tol=1e-3), found)
    accuracies = {}
    for name in ["gpu", "hogwild", "async_ps"]:
        outcome = events(folder / name, "outcome")[0]
        accuracies[outcome["name"]] = outcome["accuracy"]
    found = ", ".join(f"{name} names {accuracy:.1%}" for name, accuracy in accuracies.items())
    expect(min(accuracies.values()) > ACCURACY, f"a method did not learn: {found}")
    return found


def parts():
    flags = "--epochs 1 --metrics metrics --device"
    program = shlex.quote(str(PROGRAMS / "async-update"))
    methods = [
        rust("async-update", f"sync-allreduce {flags} cuda", "gpu"),
        rust("async-update", f"sync-allreduce {flags} cpu", "cpu", uses_cuda=False),
        rust("async-update", f"hogwild --threads 2 {flags} cuda", "hogwild"),
        rust("launch", f"-n 3 -- {program} async-ps {flags} cuda", "async_ps"),
    ]
    return [Part(TOPIC, "gradients on the GPU, by three methods", [methods], trained)]
