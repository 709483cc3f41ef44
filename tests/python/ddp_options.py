"""What models wrapped with options, local steps and averages of models must equal: see core/tests/ddp_parity.rs.

    python tests/python/ddp_options.py python.safetensors    # as a rank of two
"""

import math
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_mnist import end
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

saved = {}


def save(name, tensor):
    saved[name] = tensor.detach().clone().contiguous()


def numbers(size, offset):
    return (torch.arange(math.prod(size), dtype=torch.float32) * 0.37 + offset).sin().view(size)


def fill(model):
    """The same weights as in Rust, but those of each rank are its own."""
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(numbers(parameter.size(), i + dist.get_rank()))


def sparse(way):
    rank = dist.get_rank()
    bag, head = nn.EmbeddingBag(20, 4, mode="sum", sparse=True), nn.Linear(4, 3)
    model = nn.Sequential(bag, head)
    fill(model)
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=way == "view")
    if way == "hook":
        ddp.register_comm_hook(None, allreduce_hook)
    for step in range(3):
        indices = (torch.arange(12) * (step + 3) + 5 * rank) % 20
        ddp.zero_grad()
        F.cross_entropy(ddp(indices.view(4, 3)), torch.arange(4) % 3).backward()
        name = f"sparse.{way}.{step}"
        save(f"{name}.bag", bag.weight.grad.to_dense())
        save(f"{name}.head", head.weight.grad)


def ignored():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fill(model)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["2.weight", "1.running_mean"])
    ddp = DistributedDataParallel(model)
    for step in range(2):
        ddp.zero_grad()
        xs = numbers((4, 6), 7 * step + dist.get_rank())
        F.cross_entropy(ddp(xs), torch.arange(4) % 3).backward()
        for name, parameter in model.named_parameters():
            save(f"ignored.{step}.grad.{name}", parameter.grad)
    for name, tensor in model.state_dict().items():
        save(f"ignored.{name}", tensor)


class Stream:
    """DDP's mixed precision copies on a stream of an accelerator, which a machine need not have."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def record(self):
        pass

    def wait(self, stream=None):
        pass

    def wait_stream(self, stream):
        pass


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, xs):
        return self.last(self.second(self.second(self.first(xs))))


def mixed(name, reduce_dtype):
    torch.Stream = torch.Event = torch.accelerator.current_stream = Stream
    model = Twice()
    fill(model)
    model.last.requires_grad_(False)
    precision = _MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-4, mixed_precision=precision)
    # Its first gradients are undefined: they go to buckets that are not exchanged.
    ddp(numbers((4, 6), 0)).float().sum().backward()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5, momentum=0.9)
    names = {"first": "0", "second": "1", "last": "2"}
    for step in range(5):
        optimizer.zero_grad()
        output = ddp(numbers((4, 6), 7 * step + dist.get_rank()))
        save(f"mixed.{name}.{step}.output", output)
        F.cross_entropy(output.float(), torch.arange(4) % 3).backward()
        for layer, i in names.items():
            for key, parameter in getattr(model, layer).named_parameters():
                if parameter.requires_grad:
                    save(f"mixed.{name}.{step}.grad.{i}.{key}", parameter.grad)
        optimizer.step()
    for layer, i in names.items():
        for key, parameter in getattr(model, layer).named_parameters():
            save(f"mixed.{name}.{i}.{key}", parameter)


def local(name, subgroup):
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    fill(model)
    ddp = DistributedDataParallel(model)
    state = PostLocalSGDState(None, subgroup, 3, post_local_gradient_allreduce=subgroup is not None)
    ddp.register_comm_hook(state, post_localSGD_hook)
    sgd = torch.optim.SGD(ddp.parameters(), lr=0.5, momentum=0.9)
    optimizer = PostLocalSGDOptimizer(sgd, PeriodicModelAverager(period=2, warmup_steps=3))
    for step in range(8):
        xs = numbers((4, 6), 7 * step + dist.get_rank())
        optimizer.zero_grad()
        F.cross_entropy(ddp(xs), torch.arange(4) % 3).backward()
        optimizer.step()
        for parameter, tensor in model.named_parameters():
            save(f"local.{name}.{step}.{parameter}", tensor)


def averaged(name, averaging, use_buffers):
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fill(model)
    average = AveragedModel(model, multi_avg_fn=averaging, use_buffers=use_buffers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(6):
        optimizer.zero_grad()
        F.cross_entropy(model(numbers((4, 6), 7 * step)), torch.arange(4) % 3).backward()
        optimizer.step()
        average.update_parameters(model)
    for key, tensor in average.module.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            save(f"averaged.{name}.{use_buffers}.{key}", tensor)


def main(file):
    dist.init_process_group("gloo")
    for way in ["plain", "view", "hook"]:
        sparse(way)
    ignored()
    mixed("BFloat16", torch.bfloat16)
    mixed("Float", torch.float32)
    local("alone", None)
    local("together", dist.new_group([0, 1]))
    for use_buffers in [False, True]:
        averaged("swa", None, use_buffers)
        averaged("ema", get_ema_multi_avg_fn(0.9), use_buffers)
    saved.pop("ignored.1.num_batches_tracked")
    save_file(saved, file)
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
