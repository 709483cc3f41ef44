"""Two steps of BatchNorm1d, 2d or 3d on a whole batch, and an evaluation: what the ranks of the example
sync_batch_norm together must come to. After the file comes the size of a sample, as there.

    python tests/python/batch_norm.py batch_norm.safetensors 5 6
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn


LAYERS = [nn.BatchNorm1d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]


def main(file, *sample):
    layer = LAYERS[len(sample)](4)
    size = [7, 4, *map(int, sample)]
    torch.manual_seed(0)
    saved = {}
    for step in range(2):
        inputs = (torch.randn(size) * 3 + 2).requires_grad_()
        output = layer(inputs)
        (output * torch.randn(size)).sum().backward()
        saved[f"output.{step}"] = output.detach()
        saved[f"inputs.grad.{step}"] = inputs.grad
    layer.eval()
    saved["output.eval"] = layer(torch.randn(size)).detach()
    for name, parameter in layer.named_parameters():
        saved[f"{name}.grad"] = parameter.grad
    save_file(saved | layer.state_dict(), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
