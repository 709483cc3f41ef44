"""The Python side of `cargo xtask bench images`: torchvision's ImageFolder and the usual transforms of ImageNet, in a DataLoader.

It goes through the images twice, with the same workers, and measures the second time. It writes the same event as the example
image_pipeline.

usage: images_torchvision.py IMAGES WORKERS BATCH_SIZE METRICS
"""

import json
import os
import sys
import time

from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, ToTensor


def main(images, workers, batch_size, metrics):
    transform = Compose(
        [
            RandomResizedCrop(224),
            RandomHorizontalFlip(),
            ToTensor(),
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    loader = DataLoader(
        ImageFolder(images, transform),
        batch_size=int(batch_size),
        shuffle=True,
        num_workers=int(workers),
        persistent_workers=True,
    )
    for _ in range(2):
        start, count = time.perf_counter(), 0
        for batch, _ in loader:
            count += len(batch)
        seconds = time.perf_counter() - start
    with open(os.path.join(metrics, "rank0.jsonl"), "w") as file:
        print(json.dumps({"event": "end", "images": count, "images_per_second": count / seconds}), file=file)


if __name__ == "__main__":
    main(*sys.argv[1:])
