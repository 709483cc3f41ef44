"""Three epochs of the first draft of Boiko's program: what the example printed_losses must equal."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from ddp_mnist import DIGITS, read_idx


def main():
    images = read_idx(DIGITS / "train-images-idx3-ubyte.gz").to(torch.float32).div(255)
    labels = read_idx(DIGITS / "train-labels-idx1-ubyte.gz").to(torch.int64)
    digits = TensorDataset(images.flatten(1), labels)

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(28 * 28, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 128),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(3):
        order = torch.Generator().manual_seed(42 + epoch)
        # A batch's digits are taken from their tensors together, which is quicker than one by one.
        batches = BatchSampler(RandomSampler(digits, num_samples=60_000, generator=order), 128, False)
        printed = total = count = 0
        # Without a generator of its own a loader draws from the global one, and shifts the dropout.
        for x, y in DataLoader(digits, None, sampler=batches, generator=torch.Generator()):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            printed += loss.item() / len(y)
            total += loss.item() * len(y)
            count += len(y)
        order.manual_seed(42 + epoch)
        val = 0
        with torch.no_grad():
            for x, y in DataLoader(digits, None, sampler=batches, generator=torch.Generator()):
                val += criterion(model(x), y).item() / len(y)
        print(f"{epoch:5}  {printed:7.4f}  {total / count:.4f}  {val:10.4f}")


if __name__ == "__main__":
    main()
