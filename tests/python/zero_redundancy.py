"""A rank that makes two steps of a ZeroRedundancyOptimizer with the others, whose gradients are the same."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")
parameters = [torch.zeros(size) for size in [(2,), (2, 3, 2, 2), (3,), (4,)]]
parameters[1] = parameters[1].to(memory_format=torch.channels_last)
slopes = [torch.arange(it.numel()).float().view(it.shape) * (i + 1) for i, it in enumerate(parameters)]
parameters = [parameter.requires_grad_() for parameter in parameters]
optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.5)
for step in (1, 2):
    for parameter, slope in zip(parameters, slopes):
        parameter.grad = slope * step
    optimizer.step()
assert all(parameter.equal(slope * -1.5) for parameter, slope in zip(parameters, slopes))
dist.destroy_process_group()
