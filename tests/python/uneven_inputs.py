"""Ranks with different numbers of batches: what the example uneven_inputs must equal.

It takes the same arguments:

    torchrun --standalone --nproc-per-node=2 tests/python/uneven_inputs.py '{}' .
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_mnist import DIGITS, end, init_process_group, mnist
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH_SIZE = 64


def main(arguments, directory):
    init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))
    model = DistributedDataParallel(mlp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    digits = mnist(DIGITS, "train")
    losses = []
    with model.join(**json.loads(arguments)):
        for step in range(4 + 3 * rank):
            first = (step * world_size + rank) * BATCH_SIZE
            images, labels = digits[first : first + BATCH_SIZE]
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    saved = {**mlp.state_dict(), "losses": torch.tensor(losses)}
    save_file(saved, Path(directory) / f"rank{rank}.safetensors")
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
