"""What any number of ranks with five virtual ranks must equal: five ranks whose gradients are added pairwise.
See core/tests/ranks/virtual_ranks.rs.

    python tests/python/virtual_ranks.py python.safetensors    # as a rank of five
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_mnist import end
from ddp_options import fill, numbers
from safetensors.torch import save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def pairwise(parts):
    if len(parts) == 1:
        return parts[0]
    half = 1 << ((len(parts) - 1).bit_length() - 1)
    return pairwise(parts[:half]) + pairwise(parts[half:])


def add_pairwise(_, bucket):
    part = bucket.buffer() * (1.0 / dist.get_world_size())
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    gathered = dist.all_gather(parts, part, async_op=True).get_future()
    return gathered.then(lambda _: pairwise(parts))


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.0))

    def forward(self, x):
        return x * self.scale


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(27, 3), Scale()
    )
    fill(model)
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-4)
    ddp.register_comm_hook(None, add_pairwise)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    saved = {}
    for step in range(5):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + rank)
        with torch.autocast("cpu", torch.bfloat16):
            output = ddp(numbers((4, 2, 5, 5), 7 * step + rank))
        loss = F.cross_entropy(output.float(), torch.arange(4) % 3)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        for name, parameter in model.named_parameters():
            saved[f"{step}.grad.{name}"] = parameter.grad.clone()
        optimizer.step()
        losses = [torch.empty_like(loss) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.detach())
        saved[f"{step}.loss"] = torch.stack(losses).mean()
    for name, tensor in model.state_dict().items():
        if "running" in name:
            dist.broadcast(tensor, 0)
        saved[name] = tensor
    save_file(saved, sys.argv[1])
    end()
