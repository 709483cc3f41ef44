"""torchvision's ResNets, and PyramidNet: what the example models must equal. It takes the same
arguments.

    python tests/python/models.py resnet18 resnet18.safetensors
    python tests/python/models.py pyramidnet pyramidnet.safetensors cuda:0
"""

import re
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from device import device_of

CLASSES = 10


class Block(nn.Module):
    """`convs` are (channels, kernel size, stride)."""

    def __init__(self, channels, convs):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.count = len(convs)
        self.stride = 1
        width = channels
        for number, (out_channels, kernel_size, stride) in enumerate(convs, 1):
            conv = nn.Conv2d(width, out_channels, kernel_size, stride, kernel_size // 2, bias=False)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number + 1}", nn.BatchNorm2d(out_channels))
            self.stride *= stride
            width = out_channels
        self.added_channels = width - channels

    def forward(self, x):
        out = self.bn1(x)
        for number in range(1, self.count + 1):
            if number > 1:
                out = F.relu(out)
            out = getattr(self, f"bn{number + 1}")(getattr(self, f"conv{number}")(out))
        shortcut = F.pad(x, (0, 0, 0, 0, 0, self.added_channels))
        if self.stride == 2:
            shortcut = F.avg_pool2d(shortcut, 2)
        return out + shortcut


class PyramidNet(nn.Module):
    """For images of 32 x 32 pixels. The blocks are made stage by stage, each `alpha / blocks` wider
    than the one before."""

    def __init__(self, blocks_per_stage, alpha, bottleneck):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        channels, width = 16, 16
        for stage in range(3):
            blocks = []
            for index in range(blocks_per_stage):
                width += alpha / (3 * blocks_per_stage)
                planes, stride = round(width), 2 if stage > 0 and index == 0 else 1
                if bottleneck:
                    convs = [(planes, 1, 1), (planes, 3, stride), (4 * planes, 1, 1)]
                else:
                    convs = [(planes, 3, stride), (planes, 3, 1)]
                blocks.append(Block(channels, convs))
                channels = convs[-1][0]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.bn_out = nn.BatchNorm2d(channels)
        self.fc_out = nn.Linear(channels, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.bn1(self.conv1(x))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = F.avg_pool2d(F.relu(self.bn_out(x)), 8)
        return self.fc_out(x.flatten(1))


def build(arch):
    if arch == "pyramidnet":
        return PyramidNet(17, 255, bottleneck=False)
    if match := re.fullmatch(r"pyramidnet(\d+)_a(\d+)(_bn)?", arch):
        bottleneck = match[3] is not None
        return PyramidNet((int(match[1]) - 2) // (9 if bottleneck else 6), int(match[2]), bottleneck)
    import torchvision  # Here, because a PyramidNet does without it.

    return torchvision.models.get_model(arch, num_classes=CLASSES)


def bytes_of(count):
    return torch.tensor(count, device="cpu")


def main(arch, file, device="cpu"):
    device = device_of(device)
    torch.set_default_device(device)
    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    model = build(arch)
    saved = {}
    if device.type == "cuda":
        saved["memory_allocated"] = bytes_of(torch.cuda.memory_allocated())

    def save(prefix, tensors):
        for name, tensor in tensors:
            saved[f"{prefix}.{name}"] = tensor.cpu().clone()

    save("initial", model.state_dict().items())
    images = torch.randn(4, 3, 32, 32, requires_grad=True)
    targets = torch.arange(4)
    for mode in ["train", "eval"]:
        model.train(mode == "train")
        logits = model(images)
        F.cross_entropy(logits, targets).backward()
        if device.type == "cuda" and mode == "train":
            saved["max_memory_allocated"] = bytes_of(torch.cuda.max_memory_allocated())
        saved[f"{mode}.logits"] = logits.detach().cpu()
        for name, tensor in [*model.named_parameters(), ("images", images)]:
            saved[f"{mode}.{name}.grad"] = tensor.grad.cpu()
            tensor.grad = None
        save(mode, model.named_buffers())

    for name, parameter in model.named_parameters():
        print(name, list(parameter.shape))
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
