"""Two steps of BatchNorm1d, 2d or 3d on a whole batch, and an evaluation: what the ranks of the example
sync_batch_norm together must come to. After the file come the device and the size of a sample, as
there.

    python tests/python/batch_norm.py batch_norm.safetensors cpu 5 6

With the device cuda, it is a rank of a job like the example itself, trains with SyncBatchNorm, and
saves its part in the same file of the directory, which then is the first argument.
"""

import os
import sys

import torch
import torch.distributed as dist
from device import device_of
from safetensors.torch import save_file
from torch import nn


LAYERS = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]


def main(file, device, *sample):
    layer, rank, ranks = LAYERS[len(sample)](4), 0, 1
    device = device_of(device)
    if device.type == "cuda":
        dist.init_process_group("gloo")
        layer, rank, ranks = nn.SyncBatchNorm(4), dist.get_rank(), dist.get_world_size()
        file = os.path.join(file, f"rank{rank}.safetensors")
    layer.to(device)
    size = [7, 4, *map(int, sample)]
    torch.manual_seed(0)

    def mine(whole):
        return whole.tensor_split(ranks)[rank].to(device)

    saved = {}
    for step in range(2):
        inputs = mine(torch.randn(size) * 3 + 2).requires_grad_()
        output = layer(inputs)
        (output * mine(torch.randn(size))).sum().backward()
        saved[f"output.{step}"] = output.detach()
        saved[f"inputs.grad.{step}"] = inputs.grad
    layer.eval()
    saved["output.eval"] = layer(mine(torch.randn(size))).detach()
    for name, parameter in layer.named_parameters():
        saved[f"{name}.grad"] = parameter.grad
    saved |= layer.state_dict()
    save_file({name: tensor.cpu() for name, tensor in saved.items()}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
