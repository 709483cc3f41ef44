"""Ten steps with clipped gradients: what the example clip_grad must equal. It takes the same arguments.

    python tests/python/clip_grad.py clip_grad_norm_ 0.5 2 clip_grad.safetensors
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn


def main(function, limit, norm_type, file):
    limit, norm_type = float(limit), float(norm_type)
    arguments = (limit, norm_type, True) if function == "clip_grad_norm_" else (limit,)
    clip = getattr(nn.utils, function)
    torch.manual_seed(0)
    first, idle, last = nn.Linear(13, 37), nn.Linear(3, 3), nn.Linear(37, 5)
    model = nn.ModuleDict({"first": first, "idle": idle, "last": last})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    labels = torch.arange(8) % 5
    norms = []
    for step in range(10):
        numbers = torch.arange(8 * 13, dtype=torch.float32) * 0.37 + step
        loss = F.cross_entropy(last(F.relu(first(numbers.sin().view(8, 13)))), labels)
        optimizer.zero_grad()
        loss.backward()
        norm = clip(model.parameters(), *arguments)
        if norm is not None:
            norms.append(norm)
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}, norm {norm}")

    saved = model.state_dict()
    if norms:
        norms.append(nn.utils.get_total_norm(model.parameters(), norm_type))
        saved["norms"] = torch.stack(norms)
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
