"""Ranks with different numbers of batches and several joinables: what the example joinables must equal.

It takes the same arguments:

    torchrun --standalone --nproc-per-node=2 tests/python/joinables.py .
"""

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

    def post_hook(self, is_last_joiner):
        steps = torch.tensor([self.counter.steps if is_last_joiner else 0])
        dist.all_reduce(steps, dist.ReduceOp.MAX)
        self.counter.steps = steps.item()


class Counter(Joinable):
    def __init__(self):
        super().__init__()
        self.samples = 0
        self.steps = 0

    def count(self, samples):
        Join.notify_join_context(self)
        self.steps += 1
        self.add(samples)

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


def main(directory):
    init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))
    model = DistributedDataParallel(mlp)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    counter = Counter()

    digits = mnist(DIGITS, "train")
    losses = []
    with Join([model, optimizer, counter], divide_by_initial_world_size=False):
        for step in range(4 + 3 * rank):
            first = (step * world_size + rank) * BATCH_SIZE
            images, labels = digits[first : first + BATCH_SIZE]
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            counter.count(len(images))
            losses.append(loss.item())

    counts = torch.tensor([counter.samples, counter.steps])
    save_file(
        {**mlp.state_dict(), "losses": torch.tensor(losses), "counts": counts},
        Path(directory) / f"rank{rank}.safetensors",
    )
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
