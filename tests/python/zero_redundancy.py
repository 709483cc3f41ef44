"""A rank that makes two steps of a ZeroRedundancyOptimizer with the others, whose gradients are the same."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer

dist.init_process_group("gloo")
parameters = [torch.zeros(size, requires_grad=True) for size in (2, 5, 3, 4)]
optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=0.5)
for step in (1, 2):
    for index, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, step * (index + 1))
    optimizer.step()
assert [float(parameter.sum()) for parameter in parameters] == [-3 * 1, -7.5 * 2, -4.5 * 3, -6 * 4]
dist.destroy_process_group()
