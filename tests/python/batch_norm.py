"""Two steps of BatchNorm2d on a whole batch, and an evaluation: what the ranks of the example
sync_batch_norm together must come to.

    python tests/python/batch_norm.py batch_norm.safetensors
"""

import sys

import torch
from safetensors.torch import save_file
from torch import nn


def main(file):
    layer = nn.BatchNorm2d(4)
    torch.manual_seed(0)
    saved = {}
    for step in range(2):
        images = (torch.randn(7, 4, 5, 6) * 3 + 2).requires_grad_()
        output = layer(images)
        (output * torch.randn(7, 4, 5, 6)).sum().backward()
        saved[f"output.{step}"] = output.detach()
        saved[f"images.grad.{step}"] = images.grad
    layer.eval()
    saved["output.eval"] = layer(torch.randn(7, 4, 5, 6)).detach()
    for name, parameter in layer.named_parameters():
        saved[f"{name}.grad"] = parameter.grad
    save_file(saved | layer.state_dict(), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
