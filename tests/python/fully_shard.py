"""A model under PyTorch's fully_shard; see core/tests/ranks/fully_shard_parity.rs."""

import sys
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ddp_mnist import end
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

saved = {}


def save(name, tensor):
    if tensor.numel() > 0:
        saved[name] = tensor.detach().clone()


def numbers(size, offset):
    return (torch.arange(torch.Size(size).numel(), dtype=torch.float32) * 0.37 + offset).sin().view(size)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(1))
        self.up = nn.Linear(6, 11)
        self.down = nn.Linear(11, 6)

    def forward(self, xs):
        return xs + self.down(self.up(xs).tanh()) * self.gain


class Net(nn.Module):
    def __init__(self, twice):
        super().__init__()
        self.position = nn.Parameter(torch.empty(6))
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(6, 3)
        self.twice = twice

    def forward(self, xs):
        xs = xs + self.position
        for block in [*self.blocks, *([self.blocks[0]] if self.twice else [])]:
            xs = block(xs)
        return self.head(xs)


def train(way):
    words = way.split("-")
    model = Net("twice" in words)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(numbers(parameter.shape, sum(name.encode())) * 0.5)
    reshard = True if "reshard" in words else False if "keep" in words else None
    # Or a number of ranks.
    reshard = next((int(word) for word in words if word.isdigit()), reshard)
    kinds = {
        "param_dtype": torch.bfloat16 if "bf16" in words else torch.float16 if "f16" in words else None,
        "reduce_dtype": torch.float32 if "reduce32" in words else None,
    }
    mesh = None
    if "hybrid" in words:
        shape = (2, dist.get_world_size() // 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        if "checkpoint" in words:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        policy = MixedPrecisionPolicy(**kinds)
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    kinds["output_dtype"] = torch.float32 if "output32" in words else None
    policy = MixedPrecisionPolicy(**kinds)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    if "adamw" in words:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss_of(offset):
        return F.cross_entropy(model(numbers((4, 6), offset)), torch.arange(4) % 3)

    for step in range(4):
        offset = 7 * step + dist.get_rank()
        loss = loss_of(offset)
        optimizer.zero_grad()
        model.set_requires_gradient_sync("nosync" not in words)
        loss.backward()
        model.set_requires_gradient_sync(True)
        if "accumulate" in words or "nosync" in words:
            loss_of(offset + 3).backward()
        save(f"{way}.{step}.loss", loss)
        for name, parameter in model.named_parameters():
            save(f"{way}.{step}.grad.{name}", parameter.grad.to_local())
        if "clip" in words:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            save(f"{way}.{step}.norm", norm.full_tensor())
            for norm_type in [0, 1, 3]:
                norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"), norm_type)
                save(f"{way}.{step}.norm{norm_type}", norm.full_tensor())
            for name, parameter in model.named_parameters():
                save(f"{way}.{step}.clipped.{name}", parameter.grad.to_local())
        optimizer.step()
        if "evaluate" in words:
            with torch.no_grad():
                save(f"{way}.{step}.evaluated", loss_of(offset))
    if "mixed" in words:
        return
    # An evaluation may have left them whole.
    for module in [model, *model.blocks]:
        module.reshard()
    for name, parameter in model.named_parameters():
        save(f"{way}.{name}", parameter.full_tensor())


def main(file, *ways):
    dist.init_process_group("gloo")
    for way in ways:
        train(way)
    save_file(saved, file)
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
