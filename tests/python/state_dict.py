"""State dicts in files of torch.save: what the example state_dict must load and write.

    python tests/python/state_dict.py write                   # a directory full of files
    python tests/python/state_dict.py load rust.pt plain.pt … # what the example prints of them
    python tests/python/state_dict.py mnist FROM TO           # a model of ddp-mnist, in another file
"""

import os
import sys
import zipfile
from collections import OrderedDict

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

import ddp_mnist


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(F.relu(self.bn(self.conv(x))).mean([2, 3]))


class Evil:
    def __reduce__(self):
        return os.system, ("touch it-ran",)


def images():
    return (torch.arange(4 * 3 * 6 * 6, dtype=torch.float32) * 0.37).sin().view(4, 3, 6, 6)


def write():
    torch.manual_seed(1)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(3):
        model(images()).sum().backward()
        optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    state = model.state_dict()
    torch.save(state, "plain.pt")
    torch.save(dict(state), "dict.pt")
    wrapped = nn.DataParallel(model).state_dict()
    torch.save(wrapped, "wrapped.pth")
    main_py = {
        "epoch": 3,
        "arch": "resnet18",
        "state_dict": wrapped,
        "best_acc1": torch.tensor(61.5),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
    }
    torch.save(main_py, "main_py.pth.tar")
    for kind in [torch.float64, torch.float16, torch.bfloat16]:
        converted = OrderedDict((name, tensor.to(kind)) for name, tensor in state.items())
        torch.save(converted, f"{kind}.pt")
    # Parameters, as `named_parameters` has them, and what a module does not share with its memory.
    own = OrderedDict(state, **{name: nn.Parameter(state[name]) for name in ["fc.weight", "fc.bias"]})
    torch.save(own, "parameters.pt")
    strided = OrderedDict(state)
    strided["conv.weight"] = state["conv.weight"].to(memory_format=torch.channels_last)
    strided["fc.weight"] = state["fc.weight"].t().contiguous().t()
    torch.save(strided, "strided.pt")
    floats = [name for name, tensor in state.items() if tensor.is_floating_point()]
    flat = torch.cat([state[name].flatten() for name in floats])
    parts = flat.split([state[name].numel() for name in floats])
    views = {name: part.view(state[name].shape) for name, part in zip(floats, parts)}
    torch.save(OrderedDict(state, **views), "one_storage.pt")
    on_gpu("plain.pt", "cuda.pt")

    torch.save(state, "legacy.pt", _use_new_zipfile_serialization=False)
    torch.jit.script(model).save("script.pt")
    torch.save(dict(state, evil=Evil()), "evil.pt")
    torch.save(model, "module.pt")


def on_gpu(source, target):
    """As if the tensors had been saved on a GPU."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            record = old.read(name)
            if name.endswith("data.pkl"):
                record = record.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0")
            new.writestr(name, record)


def load(files):
    for file in files:
        model = Network()
        saved = torch.load(file, map_location="cpu")
        saved = saved.get("state_dict", saved)
        consume_prefix_in_state_dict_if_present(saved, "module.")
        assert list(saved) == list(model.state_dict()), f"{file}: {list(saved)}"
        model.load_state_dict(saved)
        model.eval()
        with torch.no_grad():
            bits = model(images()).view(torch.int32).flatten().tolist()
        print(f"{file}: {[*bits, model.bn.num_batches_tracked.item()]}")


def mnist(source, target):
    model = ddp_mnist.create_model()
    read = load_file if source.endswith(".safetensors") else torch.load
    model.load_state_dict(read(source))
    write = save_file if target.endswith(".safetensors") else torch.save
    write(model.state_dict(), target)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        write()
    elif command == "load":
        load(arguments)
    else:
        mnist(*arguments)
