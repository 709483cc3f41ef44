"""The Python side of `cargo xtask bench mnist`: an MLP on Fashion-MNIST under DistributedDataParallel, over gloo.

The job is that of Oleg Boiko's "Distributed training with PyTorch": torchvision's dataset, a DataLoader with workers, a
DistributedSampler, and an evaluation at the epoch's end. It writes the same events as ddp-mnist.

usage: torchrun --standalone --nproc-per-node=2 mnist_torchvision.py --data DIR --metrics DIR [--in-memory]
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms

BATCH_SIZE = 128
WORKERS = 2
MEAN, STD = 0.1307, 0.3081


def create_model():
    return nn.Sequential(
        nn.Linear(28 * 28, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10, bias=False),
    )


def load_as_batches(root):
    """Loaders that decode and normalise image by image, in processes of their own."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    train = datasets.FashionMNIST(root, train=True, transform=transform)
    test = datasets.FashionMNIST(root, train=False, transform=transform)
    sampler = DistributedSampler(train, shuffle=True, seed=42)
    sampler.set_epoch(0)
    return (
        DataLoader(train, BATCH_SIZE, shuffle=False, sampler=sampler, num_workers=WORKERS),
        DataLoader(test, BATCH_SIZE, shuffle=False, num_workers=WORKERS),
    )


def load_into_memory(root):
    """All batches made before the first step: what remains is the step alone."""

    def batches(dataset, indices):
        images = dataset.data.float().div_(255).sub_(MEAN).div_(STD).unsqueeze(1)
        return [(images[i], dataset.targets[i]) for i in torch.tensor(indices).split(BATCH_SIZE)]

    train = datasets.FashionMNIST(root, train=True)
    test = datasets.FashionMNIST(root, train=False)
    sampler = DistributedSampler(train, shuffle=True, seed=42)
    return batches(train, list(sampler)), batches(test, range(len(test)))


def train_one_epoch(model, batches, optimizer, write):
    """Returns when the first step ended, and the seconds that each step took, the fetching of its batch not counted."""
    model.train()
    first_step_ended = None
    seconds = []
    for step, (images, labels) in enumerate(batches):
        images = images.view(len(images), -1)
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.item()
        seconds.append(time.perf_counter() - start)
        first_step_ended = first_step_ended or time.time()
        write("step", epoch=0, step=step, loss=loss)
    return first_step_ended, seconds


def evaluate(model, batches):
    """Accuracy on all of the test images; every rank computes it."""
    model.eval()
    correct = count = 0
    with torch.no_grad():
        for images, labels in batches:
            predicted = model(images.view(len(images), -1)).argmax(dim=1)
            correct += (predicted == labels).sum().item()
            count += len(labels)
    return correct / count


def peak_rss_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder that holds FashionMNIST/raw")
    parser.add_argument("--metrics", required=True, help="folder for the JSON lines")
    parser.add_argument("--in-memory", action="store_true", help="make all batches before the first step")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    with open(os.path.join(args.metrics, f"rank{rank}.jsonl"), "w") as metrics:

        def write(event, **fields):
            line = {"event": event, "rank": rank, "world_size": dist.get_world_size(), **fields}
            print(json.dumps(line, separators=(",", ":")), file=metrics, flush=True)

        train, test = load_into_memory(args.data) if args.in_memory else load_as_batches(args.data)
        model = DistributedDataParallel(create_model())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        first_step_ended, seconds = train_one_epoch(model, train, optimizer, write)
        accuracy = evaluate(model, test)
        if rank == 0:
            print(f"Epoch=0, accuracy={accuracy:.4f}")
        write(
            "end",
            first_step_unix_seconds=first_step_ended,
            end_unix_seconds=time.time(),
            step_seconds_median=statistics.median(seconds),
            peak_rss_bytes=peak_rss_bytes(),
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
