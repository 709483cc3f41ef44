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
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

BATCH_SIZE = 64


class CounterHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        self.counter.add(0)


class Counter(Joinable):
    def __init__(self):
        super().__init__()
        self.samples = 0

    def add(self, samples):
        total = torch.tensor([samples])
        dist.all_reduce(total)
        self.samples += total.item()

    def join_hook(self, **_):
        return CounterHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


def main(arguments, directory, sharded=None):
    init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))
    model = DistributedDataParallel(mlp)
    sgd = {"lr": 0.1, "momentum": 0.9}
    counter = Counter()
    if sharded:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, **sgd)
        join = Join([model, optimizer, counter], **json.loads(arguments))
    else:
        optimizer = torch.optim.SGD(model.parameters(), **sgd)
        join = model.join(**json.loads(arguments))

    digits = mnist(DIGITS, "train")
    losses = []
    with join:
        for step in range(4 + 3 * rank):
            first = (step * world_size + rank) * BATCH_SIZE
            images, labels = digits[first : first + BATCH_SIZE]
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if sharded:
                Join.notify_join_context(counter)
                counter.add(len(images))
            losses.append(loss.item())

    saved = {**mlp.state_dict(), "losses": torch.tensor(losses), "samples": torch.tensor(counter.samples)}
    save_file(saved, Path(directory) / f"rank{rank}.safetensors")
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
