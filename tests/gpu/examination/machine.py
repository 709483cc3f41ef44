"""What this machine has, as a JSON object: its PyTorch and its GPUs.

It is a script of its own, because a process that has initialised CUDA cannot fork others that use it.
"""

import importlib.util
import json
import os

import torch


def main():
    gpus = torch.cuda.device_count()
    found = {
        "torch": torch.__version__.split("+")[0],
        "cuda": torch.version.cuda,
        "libraries": os.path.join(os.path.dirname(torch.__file__), "lib"),
        "torchvision": importlib.util.find_spec("torchvision") is not None,
        "gpus": [torch.cuda.get_device_name(index) for index in range(gpus)],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
