"""What trainings leave behind, and whether two are equal."""

import array
import json
import math


class Failed(Exception):
    """A part has failed, for this reason."""


class NotPossible(Exception):
    """This machine does not allow a part, for this reason."""


def expect(holds, reason):
    if not holds:
        raise Failed(reason)


def events(folder, name, rank=0):
    """The events of this name in a rank's metrics."""
    lines = (folder / f"metrics/rank{rank}.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def losses(folder, rank=0):
    """The losses of a rank's steps, as 32-bit floats."""
    found = [event["loss"] for event in events(folder, "step", rank)]
    expect(found, f"rank {rank} logged no loss")
    return array.array("f", found)


def tensors(path):
    """The tensors of a safetensors file: type, shape and bytes by name."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    return {
        name: (entry["dtype"], entry["shape"], content[slice(*(begin + at for at in entry["data_offsets"]))])
        for name, entry in header.items()
    }


def weights(path, prefix=""):
    """The tensors whose names begin with the prefix, without it."""
    found = tensors(path).items()
    return {name[len(prefix) :]: tensor for name, tensor in found if name.startswith(prefix)}


def expect_equal_losses(rust, python, relative=0):
    """The losses of each step may differ by this share of the larger one."""
    expect(len(rust) == len(python), f"{len(rust)} steps in Rust, {len(python)} in Python")
    for step, (ours, theirs) in enumerate(zip(rust, python)):
        reason = f"the losses of step {step} are {ours:.9g} in Rust and {theirs:.9g} in Python"
        expect(math.isclose(ours, theirs, rel_tol=relative), reason)


def expect_equal_tensors(rust, python):
    """Fails with the number of tensors that differ, and by how much the first of them does."""
    expect(rust, "Rust saved no tensor")
    names = set(rust) ^ set(python)
    expect(not names, f"only one side saved {', '.join(sorted(names)[:5])}")
    differ = [name for name in rust if rust[name] != python[name]]
    if differ:
        name = differ[0]
        found = f"{len(differ)} of {len(rust)} tensors differ, {name} {distance(rust[name], python[name])}"
        raise Failed(found)


def distance(ours, theirs):
    if ours[:2] != theirs[:2] or ours[0] != "F32":
        return f"({ours[0]} {ours[1]} in Rust, {theirs[0]} {theirs[1]} in Python)"
    pairs = list(zip(array.array("f", ours[2]), array.array("f", theirs[2])))
    most = max(abs(a - b) for a, b in pairs)
    return f"by {most:.3g} at most, where the largest number is {max(abs(b) for _, b in pairs):.3g}"
