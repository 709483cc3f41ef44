"""Which samples come in which order: what the example data_order must equal. It takes the same arguments.

    python tests/python/data_order.py '{"RandomSampler": {"len": 5, "seed": 1}}'
"""

import itertools
import json
import sys

import torch
from torch import nn
from torch.utils import data
from torch.utils.data import DataLoader

EPOCHS = 3


def sampler(description, epoch):
    ((name, arguments),) = description.items()
    arguments = dict(arguments)
    generator = seeded(arguments.pop("seed", None), epoch)
    if name == "SequentialSampler":
        return data.SequentialSampler(range(arguments["len"]))
    if name == "RandomSampler":
        return data.RandomSampler(range(arguments.pop("len")), generator=generator, **arguments)
    if name == "DistributedSamplerWrapper":
        return distributed(list(sampler(arguments.pop("sampler"), epoch)), **arguments)
    arguments.pop("len", None)
    return getattr(data, name)(generator=generator, **arguments)


def seeded(seed, epoch):
    return None if seed is None else torch.Generator().manual_seed(seed + epoch)


def loader_generator(arguments):
    return None if arguments.pop("draw_base_seed", False) else torch.Generator()


def distributed(sequence, **arguments):
    positions = data.DistributedSampler(sequence, shuffle=False, **arguments)
    return [sequence[position] for position in positions]


def growing(count):
    batches, begin = [], 0
    while begin < count:
        end = min(begin + len(batches) + 1, count)
        batches.append(list(range(begin, end)))
        begin = end
    return batches


class Count(data.IterableDataset):
    def __init__(self, count, rank, num_replicas, epoch):
        self.count = count // num_replicas * num_replicas
        self.rank, self.num_replicas, self.epoch = rank, num_replicas, epoch

    def __iter__(self):
        info = data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        numbers = range(self.epoch, self.count + self.epoch)
        of_rank = itertools.islice(numbers, self.rank, None, self.num_replicas)
        return itertools.islice(of_rank, worker, None, workers)


def losses(seed, batch_size, generator=None, **_):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = data.TensorDataset(torch.arange(48, dtype=torch.float32).view(24, 2) / 48.0)
    order = data.DistributedSampler(inputs, num_replicas=1, rank=0, seed=7)
    loader = DataLoader(inputs, batch_size, sampler=order, generator=generator)
    for epoch in range(EPOCHS):
        order.set_epoch(epoch)
        for (batch,) in loader:
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()


def run(description, epoch):
    ((name, arguments),) = description.items()
    arguments = dict(arguments)
    if name == "IterableDataset":
        count = Count(arguments.pop("len"), arguments.pop("rank"), arguments.pop("num_replicas"), epoch)
        return [batch.tolist() for batch in DataLoader(count, **arguments)]
    if name == "batch_sampler":
        count = arguments.pop("len")
        batches = distributed(growing(count), **arguments)
        return [batch.tolist() for batch in DataLoader(range(count), batch_sampler=batches)]
    if name == "BatchSampler":
        count, order = arguments.pop("len"), sampler(arguments.pop("sampler"), epoch)
        generator = loader_generator(arguments)
        loader = DataLoader(range(count), sampler=order, generator=generator, **arguments)
        return [batch.tolist() for batch in loader]
    if name == "ConcatDataset":
        starts = [0, *arguments["cumulative_sizes"]]
        parts = [range(start, end) for start, end in itertools.pairwise(starts)]
        order = sampler(arguments["sampler"], epoch)
        loader = DataLoader(data.ConcatDataset(parts), arguments["batch_size"], sampler=order)
        return [batch.tolist() for batch in loader]
    return list(sampler(description, epoch))


def main(*descriptions):
    for description in map(json.loads, descriptions):
        ((name, arguments),) = description.items()
        if "manual_seed" in arguments:
            torch.manual_seed(arguments.pop("manual_seed"))
        if name == "training":
            result = list(losses(generator=loader_generator(arguments), **arguments))
        elif name == "random_split":
            generator = seeded(arguments.get("seed"), 0) or torch.default_generator
            parts = data.random_split(range(arguments["len"]), arguments["lengths"], generator)
            result = [part.indices for part in parts]
        else:
            result = [run(description, epoch) for epoch in range(EPOCHS)]
        print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
