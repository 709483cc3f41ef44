"""Twelve steps with each of these optimizers: what the examples optimizers and muon must equal. It takes the same
arguments.

    python tests/python/optimizers.py optimizers.safetensors '{"optimizer": "RMSprop", "options": {"lr": 0.1}, "problem": "double"}' …
"""

import json
import sys

import torch
import torch.nn.functional as F
from device import device_of
from safetensors.torch import save_file
from torch import nn

STEPS = 12


def sentences(step):
    return (torch.arange(8 * 6) * (step + 7) % 50).view(8, 6)


def waves(step, *shape):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) * 0.37 + step).sin().view(shape)


def words(device, dtype):
    torch.manual_seed(0)
    embedding, linear = nn.Embedding(50, 19, padding_idx=0), nn.Linear(19, 5)
    model = nn.ModuleDict({"embedding": embedding, "linear": linear}).to(device, dtype)
    targets = (torch.arange(8) % 5).to(device)

    def loss(step):
        return F.cross_entropy(linear(embedding(sentences(step).to(device)).mean(1)), targets)

    return model, loss


def complex_numbers(device):
    model = nn.Module()
    model.weight = nn.Parameter(torch.complex(waves(0, 7, 5), waves(1, 7, 5)).to(device))

    def loss(step):
        factor = torch.complex(waves(step, 5), waves(step + 2, 5)).to(device)
        error = model.weight * factor - 0.5
        return torch.view_as_real(error).square().mean()

    return model, loss


def sparse(device):
    model = nn.Module()
    model.weight = nn.Parameter(waves(0, 50, 19).to(device))

    def loss(step):
        # One step without a word: its gradient is empty.
        chosen = sentences(step)[: 0 if step == 5 else 8].to(device)
        words = F.embedding(chosen, model.weight, sparse=True)
        return (words.square() * waves(step, 6, 19).to(device)).sum()

    return model, loss


def matrices(device):
    model = nn.Module()
    shapes = {"tall": (32, 19), "square": (32, 32), "wide": (5, 32)}
    for name, shape in shapes.items():
        setattr(model, name, nn.Parameter(waves(0, *shape).to(device)))

    def loss(step):
        hidden = (waves(step, 8, 19).to(device) @ model.tall.T).tanh() @ model.square.T
        return (hidden.tanh() @ model.wide.T).square().mean()

    return model, loss


PROBLEMS = {
    "float": lambda device: words(device, torch.float32),
    "double": lambda device: words(device, torch.float64),
    "bfloat16": lambda device: words(device, torch.bfloat16),
    "complex": complex_numbers,
    "sparse": sparse,
    "matrices": matrices,
}


def plain(tensor):
    """What a safetensors file can hold."""
    if not torch.is_tensor(tensor):
        return torch.tensor(tensor, dtype=torch.float32)
    tensor = tensor.detach().cpu()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return torch.view_as_real(tensor).clone() if tensor.is_complex() else tensor.clone()


def run(case):
    model, loss = PROBLEMS[case["problem"]](device_of("cuda" if case.get("on_gpu") else "cpu"))
    optimizer = getattr(torch.optim, case["optimizer"])(model.parameters(), **case["options"])
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
    for name, parameter in model.named_parameters():
        yield name, plain(parameter)
        for entry, tensor in optimizer.state[parameter].items():
            yield f"{name}.{entry}", plain(tensor)


def main(file, *cases):
    saved = {}
    for number, case in enumerate(cases):
        saved |= {f"{number}.{name}": tensor for name, tensor in run(json.loads(case))}
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
