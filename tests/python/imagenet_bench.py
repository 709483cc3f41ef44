"""Training steps of a network on one device: what `cargo xtask bench imagenet` measures ddp-imagenet against.

It takes ddp-imagenet train-cifar's flags, and writes its events `step`. The clock starts when the
batch is there, as in dnddnjs/pytorch-multigpu.

    python tests/python/imagenet_bench.py --arch resnet18 --image-size 224 --batch-size 8 --steps 12 --metrics out
"""

import argparse
import json
import time
from pathlib import Path

import torch
from models import build
from torch import nn


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-a", "--arch", required=True)
    parser.add_argument("-b", "--batch-size", type=int, required=True)
    parser.add_argument("--image-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--metrics", type=Path, required=True, help="a directory for rank0.jsonl")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    model = build(args.arch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss()
    batches = [
        (
            torch.randn(args.batch_size, 3, args.image_size, args.image_size),
            torch.randint(10, (args.batch_size,)),
        )
        for _ in range(args.steps)
    ]

    args.metrics.mkdir(parents=True, exist_ok=True)
    with open(args.metrics / "rank0.jsonl", "w") as metrics:
        for step, (images, labels) in enumerate(batches):
            begun = time.perf_counter()
            outputs = model(images)
            loss = criterion(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            outputs.argmax(-1).eq(labels).sum().item()
            seconds = time.perf_counter() - begun
            event = {"event": "step", "epoch": 0, "step": step, "batch_seconds": seconds}
            print(json.dumps(event), file=metrics)


if __name__ == "__main__":
    main()
