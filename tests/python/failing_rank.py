"""Rank 1 fails for a reason of its own, and leaves it for the launcher."""

import os
import traceback

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    for step in range(10):
        if step == 5 and dist.get_rank() == 1:
            raise ValueError("no sample 6 in the data set")
        dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        # A normal exit sometimes aborts here, because gloo's threads are still running.
        os._exit(1)
