"""Twelve steps of a small network in mixed precision: what the example amp must equal. It takes the same arguments.

    python tests/python/amp.py float16 amp.safetensors cuda:0
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from device import device_of


def waves(count):
    numbers = torch.arange(count, dtype=torch.float32, device="cpu") * 0.37
    return numbers.sin().to(torch.get_default_device())


def main(kind, file, device="cpu"):
    device = device_of(device)
    torch.set_default_device(device)
    fc1, fc2 = nn.Linear(192, 32), nn.Linear(32, 5)
    model = nn.ModuleDict({"fc1": fc1, "fc2": fc2})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((waves(parameter.numel()) * 0.1).view_as(parameter))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**20, growth_interval=3)

    losses, scales = [], []
    for step in range(12):
        inputs = (waves(4 * 192) + 0.1 * step).view(4, 192)
        labels = (torch.arange(4) + step) % 5
        with torch.autocast(device.type, dtype=getattr(torch, kind)):
            logits = fc2(F.relu(fc1(inputs)))
            loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.detach())
        scales.append(scaler.get_scale())

    saved = model.state_dict() | {"losses": torch.stack(losses), "scales": torch.tensor(scales)}
    save_file({name: tensor.cpu() for name, tensor in saved.items()}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
