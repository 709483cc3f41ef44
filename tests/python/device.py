"""The device of a script, from its flag or argument: `cpu`, or `cuda` for the GPU of this rank."""

import os

import torch


def device_of(name):
    """The CPU, or the GPU of this rank, which becomes the current one. Ranks share GPUs if there are fewer,
    as in Rust."""
    if name.startswith("cpu"):
        return torch.device("cpu")
    # The script's first call of CUDA: without a GPU, it ends here.
    torch.cuda.init()
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())
