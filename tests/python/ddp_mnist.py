"""MNIST trained with torch.nn.parallel.DistributedDataParallel: what ddp-mnist must equal.

It takes ddp-mnist's flags, writes its step events and saves its weights under the same names.
Run it alone, under torchrun, or as some of the ranks of a job whose other ranks run ddp-mnist:

    torchrun --standalone --nproc-per-node=2 tests/python/ddp_mnist.py --epochs 1 --metrics out
"""

import argparse
import gzip
import json
import os
import struct
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from device import device_of

DIGITS = Path(__file__).resolve().parents[2] / "core/data/assets/mnist-10k"


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128, help="of each rank")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--nesterov", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="rank r takes seed + r")
    parser.add_argument("--sampler-seed", type=int, default=42)
    parser.add_argument("--no-shuffle", dest="shuffle", action="store_false")
    parser.add_argument("--data-dir", type=Path, default=DIGITS)
    parser.add_argument("--metrics", type=Path, help="a directory for rank0.jsonl, rank1.jsonl …")
    parser.add_argument("--save", type=Path, default=Path("model.safetensors"))
    parser.add_argument("--no-save", dest="save", action="store_const", const=None)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--backend", choices=["gloo", "nccl"])
    # DistributedDataParallel's own options.
    parser.add_argument("--bucket-cap-mb", type=float)
    parser.add_argument("--find-unused-parameters", action="store_true")
    parser.add_argument("--gradient-as-bucket-view", action="store_true")
    parser.add_argument("--static-graph", action="store_true")
    parser.add_argument("--no-broadcast-buffers", dest="broadcast_buffers", action="store_false")
    # Communication hooks.
    parser.add_argument("--comm-hook", choices=["allreduce", "fp16", "bf16", "power-sgd"])
    parser.add_argument("--power-sgd-rank", type=int, default=1)
    parser.add_argument("--start-power-sgd-iter", type=int, default=1000)
    return parser.parse_args()


def init_process_group(device=torch.device("cpu"), backend=None):
    if "RANK" not in os.environ:  # no launcher: a world of one
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group(backend or ("nccl" if device.type == "cuda" else "gloo"))


def read_idx(path):
    """IDX is two zero bytes, a type, the number of dimensions, the dimensions, the values."""
    content = bytearray(gzip.decompress(path.read_bytes()))
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, offset=4)
    return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * dimensions).view(shape)


def mnist(directory, part):
    """What torchvision's MNIST, ToTensor and Normalize((0.1307,), (0.3081,)) give, flattened."""
    images = read_idx(directory / f"{part}-images-idx3-ubyte.gz").to(torch.float32).div(255)
    images.sub_(torch.tensor(0.1307)).div_(torch.tensor(0.3081))
    labels = read_idx(directory / f"{part}-labels-idx1-ubyte.gz").to(torch.int64)
    return TensorDataset(images.flatten(1), labels)


def create_model():
    return nn.Sequential(
        nn.Linear(28 * 28, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, 10, bias=False),
    )


def register_comm_hook(model, args):
    if args.comm_hook == "power-sgd":
        state = powerSGD_hook.PowerSGDState(
            None,
            matrix_approximation_rank=args.power_sgd_rank,
            start_powerSGD_iter=args.start_power_sgd_iter,
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif args.comm_hook is not None:
        hooks = {
            "allreduce": default_hooks.allreduce_hook,
            "fp16": default_hooks.fp16_compress_hook,
            "bf16": default_hooks.bf16_compress_hook,
        }
        model.register_comm_hook(None, hooks[args.comm_hook])


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


def train(model, loader, optimizer, epoch, metrics, device):
    """One epoch; returns the mean loss over the samples of all ranks."""
    model.train()
    total = torch.zeros(2, dtype=torch.float64)  # sum of losses, number of samples
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.write("step", epoch=epoch, step=step, loss=loss.item())
        total += torch.tensor([loss.item() * len(y), len(y)], dtype=torch.float64)
    return mean(total, device)


def mean(total, device):
    """Of a sum and a count, over all ranks."""
    total = total.to(device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def evaluate(model, loader, device):
    """Every rank evaluates the whole test set: mean loss and accuracy."""
    model.eval()
    loss = correct = count = 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            output = model(x)
            loss += F.cross_entropy(output, y).item() * len(y)
            correct += (output.argmax(1) == y).sum().item()
            count += len(y)
    return loss / count, correct / count


def end():
    """Ends this process at once, while gloo's threads let go of the last tensors, which takes Python's
    lock. destroy_process_group may wait for these threads with the lock in its hands. An interpreter that
    ends properly kills a thread that asks for the lock: "terminate called without an active exception"."""
    sys.stdout.flush()
    os._exit(0)


def main():
    args = parse_args()
    device = device_of(args.device)
    init_process_group(device, args.backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    metrics = Metrics(args.metrics, rank, world_size)
    metrics.write("start")

    train_set, test_set = mnist(args.data_dir, "train"), mnist(args.data_dir, "t10k")
    sampler = DistributedSampler(
        train_set, world_size, rank, shuffle=args.shuffle, seed=args.sampler_seed
    )
    # Without a generator of its own a loader draws from the global one, and shifts the dropout.
    train_loader = DataLoader(
        train_set, args.batch_size, sampler=sampler, generator=torch.Generator()
    )
    test_loader = DataLoader(test_set, args.batch_size, generator=torch.Generator())

    # Dropout differs from rank to rank; the weights are rank 0's as soon as the model is wrapped.
    torch.manual_seed(args.seed + rank)
    with device:  # as in Rust, a GPU draws its weights itself
        model = create_model()
    model = DistributedDataParallel(
        model,
        bucket_cap_mb=args.bucket_cap_mb,
        find_unused_parameters=args.find_unused_parameters,
        gradient_as_bucket_view=args.gradient_as_bucket_view,
        static_graph=args.static_graph,
        broadcast_buffers=args.broadcast_buffers,
    )
    register_comm_hook(model, args)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=args.lr,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        nesterov=args.nesterov,
    )

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train(model, train_loader, optimizer, epoch, metrics, device)
        val_loss, accuracy = evaluate(model, test_loader, device)
        results = {"train_loss": train_loss, "val_loss": val_loss, "accuracy": accuracy}
        metrics.write("epoch", epoch=epoch, **results)
        if rank == 0:
            values = ", ".join(f"{name}={value:.4f}" for name, value in results.items())
            print(f"Epoch={epoch}, {values}", flush=True)

    if rank == 0 and args.save is not None:
        save_file(model.module.state_dict(), args.save)
    end()


if __name__ == "__main__":
    main()
