"""What trainings with hooks of DistributedDataParallel must equal: see core/tests/ranks/ddp_hooks.rs.

    python tests/python/ddp_hooks.py python.safetensors    # as a rank of two
"""

import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_mnist import end
from ddp_options import fill, numbers, save, saved
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation


def train(name, register=lambda ddp: None, delayed=False, steps=True, **options):
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fill(model)
    if delayed:
        named = [(key, model.get_parameter(key)) for key in ["2.weight", "2.bias"]]
        options = dict(delay_all_reduce_named_params=named, param_to_hook_all_reduce=model[0].weight)
    ddp = DistributedDataParallel(model, **options)
    register(ddp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad()
        xs = numbers((4, 6), 7 * step + dist.get_rank())
        F.cross_entropy(ddp(xs), torch.arange(4) % 3).backward()
        # PyTorch does not wait for the delayed exchange.
        dist.barrier()
        for key, parameter in model.named_parameters():
            save(f"{name}.{step}.{key}.grad", parameter.grad)
        if steps:
            optimizer.step()
        save_state(f"{name}.{step}", model)


def in_backward(name, optimizer, **options):
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    fill(model)
    _apply_optimizer_in_backward(optimizer, model.parameters(), options)
    for step in range(5):
        xs = numbers((4, 6), 7 * step + dist.get_rank())
        F.cross_entropy(model(xs), torch.arange(4) % 3).backward()
        assert all(parameter.grad is None for parameter in model.parameters())
        save_state(f"{name}.{step}", model)


def save_state(name, model):
    for key, tensor in model.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            save(f"{name}.{key}", tensor)


def stateless(hook):
    return lambda ddp: ddp.register_comm_hook(None, hook)


def gather(outputs, *args, **kwargs):
    """The hooks of quantization expect what NCCL's future has, a tensor of all ranks."""
    future = all_gather(outputs, *args, **kwargs).get_future().then(lambda _: [torch.stack(outputs)])
    return SimpleNamespace(get_future=lambda: future)


all_gather, dist.all_gather = dist.all_gather, gather


def per_channel(bucket_size):
    def hook(group, bucket):
        return quantization.quantization_perchannel_hook(group, bucket, bucket_size=bucket_size)

    return hook


def power(hook=power_sgd.powerSGD_hook, **options):
    def waiting(state, bucket):
        future = hook(state, bucket)
        # Or ranks would exchange the second halves of several buckets in any order.
        future.wait()
        return future

    def register(ddp):
        state = power_sgd.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=0.9, **options)
        ddp.register_comm_hook(state, waiting)

    return register


def batched(rank):
    return power(power_sgd.batched_powerSGD_hook, matrix_approximation_rank=rank)


def fused(*args, **kwargs):
    return lambda ddp: ddp._register_fused_optim(*args, **kwargs)


def maxima(asynchronous, buffers):
    works = [dist.all_reduce(buffer, dist.ReduceOp.MAX, async_op=asynchronous) for buffer in buffers.values()]
    return [work.get_future() for work in works] if asynchronous else None


def main(file):
    dist.init_process_group("gloo")
    train("delayed", delayed=True)
    train("wrapper.half", stateless(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)))
    train("wrapper.brain", stateless(default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)))
    half = stateless(default_hooks.fp16_compress_hook)
    train("half.view", half, bucket_cap_mb=1e-5, gradient_as_bucket_view=True)
    train("half.unused", half, bucket_cap_mb=1e-5, find_unused_parameters=True)
    train("half.static", half, bucket_cap_mb=1e-5, static_graph=True)
    tensor = quantization.quantization_pertensor_hook
    train("tensor", stateless(tensor))
    train("tensor.brain", stateless(default_hooks.bf16_compress_wrapper(tensor)))
    for size in [16, 21]:
        train(f"channel.{size}", stateless(per_channel(size)))
    for rank in [1, 2, 3]:
        train(f"power.{rank}", power(matrix_approximation_rank=rank))
    train("power.cold", power(warm_start=False))
    train("power.unfed", power(use_error_feedback=False))
    train("power.long", power(orthogonalization_epsilon=0.1))
    train("power.buckets", power(), bucket_cap_mb=1e-5)
    train("power.half", power(default_hooks.fp16_compress_wrapper(power_sgd.powerSGD_hook)))
    # It takes batches of matrices, and the hook passes a matrix.
    orthogonalize = power_sgd._orthogonalize
    power_sgd._orthogonalize = lambda matrix: orthogonalize(matrix.unsqueeze(0))
    for rank in [1, 2, 4]:
        train(f"batched.{rank}", batched(rank))
    train("batched.buckets", batched(2), bucket_cap_mb=1e-5)
    train("fused.sgd", fused(torch.optim.SGD, 0.5, momentum=0.9), steps=False)
    in_backward("backward.sgd", torch.optim.SGD, lr=0.5, momentum=0.9)
    in_backward("backward.adamw", torch.optim.AdamW)
    train("fused.adam", fused(torch.optim.Adam, 0.01), steps=False)
    train("fused.buckets", fused(torch.optim.Adam, 0.01), steps=False, bucket_cap_mb=1e-5)
    train("buffers.own", broadcast_buffers=False)
    for location in _BufferCommHookLocation:
        after = location == _BufferCommHookLocation.POST_FORWARD
        train(f"buffers.{after}", lambda ddp: ddp._register_buffer_comm_hook(after, maxima, location))
    save_file(saved, file)
    end()


if __name__ == "__main__":
    main(*sys.argv[1:])
