"""Ten steps of torch.optim.Adam: what the example adam must equal. It takes the same arguments.

    python tests/python/adam.py '{"lr": 0.01, "weight_decay": 0.1}' adam.safetensors
"""

import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn


def main(arguments, file):
    torch.manual_seed(0)
    embedding, linear = nn.Embedding(50, 19, padding_idx=0), nn.Linear(19, 5)
    model = nn.ModuleDict({"embedding": embedding, "linear": linear})
    optimizer = torch.optim.Adam(model.parameters(), **json.loads(arguments))

    targets = torch.arange(8) % 5
    for step in range(10):
        sentences = (torch.arange(8 * 6) * (step + 7) % 50).view(8, 6)
        loss = F.cross_entropy(linear(embedding(sentences).mean(1)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")

    saved = model.state_dict()
    for name, parameter in model.named_parameters():
        for entry, tensor in optimizer.state[parameter].items():
            saved[f"{name}.{entry}"] = tensor
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
