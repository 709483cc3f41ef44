"""ImageNet's main.py on the embedded digits, as images of CIFAR's shape: what ddp-imagenet must equal.

It takes ddp-imagenet's flags, writes its step events and saves its weights under the same names.
Run it alone, under torchrun, or as some of the ranks of a job whose other ranks run ddp-imagenet:

    torchrun --standalone --nproc-per-node=2 tests/python/imagenet.py --epochs 1 --steps 10 --metrics out
"""

import argparse
import contextlib
import gzip
import itertools
import json
import os
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from ddp_mnist import end
from models import build

DIGITS = Path(__file__).resolve().parents[2] / "core/assets/mnist-10k"
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-a", "--arch", default="resnet18")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("-b", "--batch-size", type=int, default=256, help="of all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--wd", "--weight-decay", dest="weight_decay", type=float, default=1e-4)
    parser.add_argument("--schedule", choices=["step", "cosine"], default="step")
    parser.add_argument("--warmup-epochs", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--amp", choices=PRECISIONS)
    parser.add_argument("--zero", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="rank r takes seed + r")
    parser.add_argument("--steps", type=int, help="batches of an epoch, by default all")
    parser.add_argument("--dataset", choices=["mnist"], required=True)
    parser.add_argument("--no-augment", action="store_true", required=True)
    parser.add_argument("-j", "--workers", type=int, default=4, help="without effect")
    parser.add_argument("--metrics", type=Path, help="a directory for rank0.jsonl, rank1.jsonl …")
    parser.add_argument("--save", type=Path, help="where rank 0 puts the weights at the end")
    return parser.parse_args()


def init_process_group():
    if "RANK" not in os.environ:  # no launcher: a world of one
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo")


# === Data ===


def read_idx(path):
    """IDX is two zero bytes, a type, the number of dimensions, the dimensions, the values."""
    content = gzip.decompress(path.read_bytes())
    dimensions = content[3]
    shape = numpy.frombuffer(content, ">u4", dimensions, offset=4)
    values = numpy.frombuffer(content, "u1", offset=4 + 4 * dimensions)
    return torch.from_numpy(values.reshape(shape).copy())


def digits(part):
    """What torchvision's Pad(2), Grayscale(3), ToTensor and Normalize give."""
    images = nn.functional.pad(read_idx(DIGITS / f"{part}-images-idx3-ubyte.gz"), (2, 2, 2, 2))
    images = images.to(torch.float32).div(255)
    images.sub_(torch.tensor(0.1307)).div_(torch.tensor(0.3081))
    labels = read_idx(DIGITS / f"{part}-labels-idx1-ubyte.gz").to(torch.int64)
    return TensorDataset(images[:, None].expand(-1, 3, -1, -1), labels)


# === Recipe ===


def create_scheduler(optimizer, args):
    if args.schedule == "step":
        main = lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    else:
        main = lr_scheduler.CosineAnnealingLR(optimizer, args.epochs - args.warmup_epochs)
    if args.warmup_epochs == 0:
        return main
    warmup = lr_scheduler.LinearLR(optimizer, 0.01, total_iters=args.warmup_epochs)
    return lr_scheduler.SequentialLR(optimizer, [warmup, main], [args.warmup_epochs])


# === Metrics ===


def f32(value):
    """A float that JSON prints as the shortest decimal that reads back as the same f32."""
    return float(str(numpy.float32(value)))


class Metrics:
    """One JSON object a line, flushed line by line, so that whoever watches sees every step."""

    def __init__(self, directory, rank, world_size):
        self.ids = {"rank": rank, "world_size": world_size}
        self.file = None
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self.file = open(directory / f"rank{rank}.jsonl", "w", buffering=1)

    def write(self, event, **values):
        if self.file is not None:
            print(json.dumps({"event": event, **self.ids, **values}), file=self.file)


def mean(total):
    """Of a sum and a count, over all ranks."""
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


# === Training ===


def layout(args):
    return torch.channels_last if args.channels_last else torch.contiguous_format


def train(model, loader, optimizer, scaler, epoch, args, metrics):
    """One epoch; returns the mean loss over the samples of all ranks."""
    model.train()
    total = torch.zeros(2, dtype=torch.float64)
    steps = min(args.steps or len(loader), len(loader))
    for step, (images, target) in enumerate(itertools.islice(loader, steps)):
        images = images.to(memory_format=layout(args))
        # The gradients of a group of batches add up, and only the last exchanges them.
        begin = step - step % args.accumulate
        end = min(begin + args.accumulate, steps)
        last = step + 1 == end
        if step == begin:
            optimizer.zero_grad()
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast("cpu", PRECISIONS.get(args.amp), enabled=args.amp is not None):
                output = model(images)
                loss = nn.functional.cross_entropy(output, target)
            scaler.scale(loss / (end - begin)).backward()
        if last:
            scaler.step(optimizer)
            scaler.update()
        metrics.write("step", epoch=epoch, step=step, loss=f32(loss.item()))
        total += torch.tensor([loss.item() * len(target), len(target)], dtype=torch.float64)
    return mean(total)


def validate(model, loader, args):
    """The ranks share the images out, none is counted twice: mean loss and accuracy."""
    model.eval()
    loss = torch.zeros(2, dtype=torch.float64)
    correct = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for images, target in itertools.islice(loader, args.steps):
            output = model(images.to(memory_format=layout(args)))
            count = len(target)
            mean_loss = nn.functional.cross_entropy(output, target).item()
            loss += torch.tensor([mean_loss * count, count], dtype=torch.float64)
            right = (output.argmax(1) == target).sum().item()
            correct += torch.tensor([right, count], dtype=torch.float64)
    return mean(loss), mean(correct)


def main():
    args = parse_args()
    init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    metrics = Metrics(args.metrics, rank, world_size)

    train_set, val_set = digits("train"), digits("t10k")
    sampler = DistributedSampler(train_set, world_size, rank, seed=args.seed)
    batch_size = args.batch_size // world_size
    # Without a generator of its own a loader draws from the global one.
    train_loader = DataLoader(train_set, batch_size, sampler=sampler, generator=torch.Generator())
    val_set = Subset(val_set, range(rank, len(val_set), world_size))
    val_loader = DataLoader(val_set, batch_size, generator=torch.Generator())

    torch.manual_seed(args.seed + rank)
    model = DistributedDataParallel(build(args.arch).to(memory_format=layout(args)))
    sgd = {"lr": args.lr, "momentum": args.momentum, "weight_decay": args.weight_decay}
    if args.zero:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, **sgd)
    else:
        optimizer = torch.optim.SGD(model.parameters(), **sgd)
    scheduler = create_scheduler(optimizer, args)
    scaler = torch.amp.GradScaler("cpu", enabled=args.amp == "fp16")

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train(model, train_loader, optimizer, scaler, epoch, args, metrics)
        val_loss, accuracy = validate(model, val_loader, args)
        scheduler.step()
        results = {"train_loss": train_loss, "val_loss": val_loss, "accuracy": accuracy}
        metrics.write("epoch", epoch=epoch, **results)

    if rank == 0 and args.save is not None:
        weights = {name: t.contiguous() for name, t in model.module.state_dict().items()}
        save_file(weights, args.save)
    dist.barrier()
    end()


if __name__ == "__main__":
    main()
