"""ImageNet's main.py on the embedded digits, as images of CIFAR's shape: what ddp-imagenet must equal.

It takes ddp-imagenet's flags, writes its step events and saves its weights under the same names.
Run it alone, under torchrun, or as some of the ranks of a job whose other ranks run ddp-imagenet:

    torchrun --standalone --nproc-per-node=2 tests/python/imagenet.py --epochs 1 --steps 10 --metrics out
"""

import argparse
import contextlib
import itertools
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

from ddp_mnist import DIGITS, Metrics, end, init_process_group, mean, read_idx
from device import device_of
from models import CLASSES, build

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
    parser.add_argument("--find-unused-parameters", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--seed", type=int, help="rank r takes seed + r; by default 0")
    parser.add_argument("--steps", type=int, help="batches of an epoch, by default all")
    parser.add_argument("--dataset", choices=["mnist", "synthetic"], required=True)
    parser.add_argument("--image-size", type=int, default=224, help="of synthetic images")
    parser.add_argument("--no-augment", action="store_true", required=True)
    parser.add_argument("-p", "--print-freq", type=int, default=10)
    parser.add_argument("-j", "--workers", type=int, default=4, help="without effect")
    parser.add_argument("--metrics", type=Path, help="a directory for rank0.jsonl, rank1.jsonl …")
    parser.add_argument("--save", type=Path, help="where rank 0 puts the weights at the end")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", choices=["gloo", "nccl"])
    return parser.parse_args()


# === Data ===


def digits(part):
    """What torchvision's Pad(2), Grayscale(3), ToTensor and Normalize give."""
    images = nn.functional.pad(read_idx(DIGITS / f"{part}-images-idx3-ubyte.gz"), (2, 2, 2, 2))
    images = images.to(torch.float32).div(255)
    images.sub_(torch.tensor(0.1307)).div_(torch.tensor(0.3081))
    labels = read_idx(DIGITS / f"{part}-labels-idx1-ubyte.gz").to(torch.int64)
    return TensorDataset(images[:, None].expand(-1, 3, -1, -1), labels)


def noise(args, device):
    """The same batch again and again: no loader takes time from the steps."""
    images = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
    batch = images, torch.arange(args.batch_size) % CLASSES
    if device.type == "cuda":
        batch = tuple(part.pin_memory() for part in batch)
    return [batch] * args.steps


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


# === Training ===


def layout(args):
    return torch.channels_last if args.channels_last else torch.contiguous_format


def to_device(images, target, args, device):
    images = images.to(device, non_blocking=True, memory_format=layout(args))
    return images, target.to(device, non_blocking=True)


def train(model, loader, optimizer, scaler, epoch, args, metrics, device):
    """One epoch; returns the mean loss over the samples of all ranks."""
    model.train()
    total = torch.zeros(2, dtype=torch.float64)
    steps = min(args.steps or len(loader), len(loader))
    for step, (images, target) in enumerate(itertools.islice(loader, steps)):
        images, target = to_device(images, target, args, device)
        # The gradients of a group of batches add up, and only the last exchanges them.
        begin = step - step % args.accumulate
        end = min(begin + args.accumulate, steps)
        last = step + 1 == end
        if step == begin:
            optimizer.zero_grad()
        with contextlib.nullcontext() if last else model.no_sync():
            with torch.autocast(device.type, PRECISIONS.get(args.amp), enabled=args.amp is not None):
                output = model(images)
                loss = nn.functional.cross_entropy(output, target)
            scaler.scale(loss / (end - begin)).backward()
        if last:
            scaler.step(optimizer)
            scaler.update()
        metrics.write("step", epoch=epoch, step=step, loss=loss.item())
        if step % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{step + 1}/{steps}]", flush=True)
        total += torch.tensor([loss.item() * len(target), len(target)], dtype=torch.float64)
    return mean(total, device)


def validate(model, loader, args, device):
    """The ranks share the images out, none is counted twice: mean loss and accuracy."""
    model.eval()
    loss = torch.zeros(2, dtype=torch.float64)
    correct = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for images, target in itertools.islice(loader, args.steps):
            images, target = to_device(images, target, args, device)
            output = model(images)
            count = len(target)
            mean_loss = nn.functional.cross_entropy(output, target).item()
            loss += torch.tensor([mean_loss * count, count], dtype=torch.float64)
            right = (output.argmax(1) == target).sum().item()
            correct += torch.tensor([right, count], dtype=torch.float64)
    return mean(loss, device), mean(correct, device)


def main():
    args = parse_args()
    device = device_of(args.device)
    torch.backends.cudnn.deterministic = args.seed is not None
    torch.backends.cudnn.benchmark = args.seed is None
    seed = args.seed or 0
    init_process_group(device, args.backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    metrics = Metrics(args.metrics, rank, world_size)

    sampler = None
    if args.dataset == "synthetic":
        train_loader = val_loader = noise(args, device)
    else:
        train_set, val_set = digits("train"), digits("t10k")
        sampler = DistributedSampler(train_set, world_size, rank, seed=seed)
        batch_size = args.batch_size // world_size
        # Without a generator of its own a loader draws from the global one.
        train_loader = DataLoader(
            train_set, batch_size, sampler=sampler, generator=torch.Generator()
        )
        val_set = Subset(val_set, range(rank, len(val_set), world_size))
        val_loader = DataLoader(val_set, batch_size, generator=torch.Generator())

    torch.manual_seed(seed + rank)
    with device:  # as in Rust, a GPU draws its weights itself
        model = build(args.arch)
    model = model.to(memory_format=layout(args))
    model = DistributedDataParallel(model, find_unused_parameters=args.find_unused_parameters)
    sgd = {"lr": args.lr, "momentum": args.momentum, "weight_decay": args.weight_decay}
    if args.zero:
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, **sgd)
    else:
        optimizer = torch.optim.SGD(model.parameters(), **sgd)
    scheduler = create_scheduler(optimizer, args)
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp == "fp16")

    for epoch in range(args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        train_loss = train(model, train_loader, optimizer, scaler, epoch, args, metrics, device)
        val_loss, accuracy = validate(model, val_loader, args, device)
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
