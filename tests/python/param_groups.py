"""Ten steps with parameter groups of several kinds: what the example param_groups must equal.

    python tests/python/param_groups.py groups.safetensors
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn
from torch.optim import SGD, Adam, AdamW, lr_scheduler

STEPS = 10


def momentum(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


class Run:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.ModuleDict(
            {
                "embedding": nn.Embedding(50, 19),
                "backbone": nn.Linear(19, 16),
                "head": nn.Linear(16, 5),
            }
        )
        self.rates = []

    def loss(self, step):
        sentences = (torch.arange(8 * 6) * (step + 7) % 50).view(8, 6)
        features = torch.tanh(self.model["backbone"](self.model["embedding"](sentences).mean(1)))
        return F.cross_entropy(self.model["head"](features), torch.arange(8) % 5)

    def step(self, step, optimizer):
        self.rates += [group["lr"] for group in optimizer.param_groups]
        self.rates += [momentum(group) for group in optimizer.param_groups]
        loss = self.loss(step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def no_decay(run):
    decay = [p for p in run.model.parameters() if p.dim() >= 2]
    rest = [p for p in run.model.parameters() if p.dim() < 2]
    optimizer = AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=0.01, weight_decay=0.1)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
    for step in range(STEPS):
        run.step(step, optimizer)
        scheduler.step()
    return optimizer


def backbone_and_head(model):
    backbone = [*model["embedding"].parameters(), *model["backbone"].parameters()]
    return backbone, list(model["head"].parameters())


def backbone(run):
    backbone, head = backbone_and_head(run.model)
    groups = [{"params": backbone, "lr": 0.03, "weight_decay": 0.01}, {"params": head}]
    optimizer = SGD(groups, lr=0.5, momentum=0.9)
    scheduler = lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.3)
    for step in range(STEPS):
        run.step(step, optimizer)
        scheduler.step()
    return optimizer


def one_cycle(run):
    backbone, head = backbone_and_head(run.model)
    optimizer = AdamW([{"params": backbone}, {"params": head}])
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=[0.01, 0.1], total_steps=STEPS)
    for step in range(STEPS):
        run.step(step, optimizer)
        if step < STEPS - 1:
            scheduler.step()
    return optimizer


def frozen(run):
    run.model["embedding"].requires_grad_(False)
    groups = [{"params": list(module.parameters())} for module in run.model.values()]
    groups[1]["lr"] = 0.0
    optimizer = AdamW(groups, lr=0.02)
    for step in range(STEPS):
        run.step(step, optimizer)
        head = optimizer.param_groups[2]
        head["betas"] = (head["betas"][0], 0.99)
        head["weight_decay"] += 0.001
    return optimizer


def added(run):
    optimizer = Adam(run.model["head"].parameters(), lr=0.02)
    scheduler = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for step in range(STEPS):
        if step == STEPS // 2:
            group = {"params": run.model["backbone"].parameters(), "lr": 0.001, "betas": (0.8, 0.99)}
            optimizer.add_param_group(group)
        run.step(step, optimizer)
        scheduler.step()
    return optimizer


def scaled(run):
    backbone, head = backbone_and_head(run.model)
    optimizer = SGD([{"params": backbone, "lr": 0.1}, {"params": head}], lr=0.5, momentum=0.9, nesterov=True)
    scaler = torch.amp.GradScaler("cpu", growth_interval=3)
    for step in range(STEPS):
        loss = run.loss(step)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
    run.rates.append(scaler.get_scale())
    return optimizer


def hooked(run):
    backbone, head = backbone_and_head(run.model)
    optimizer = Adam([{"params": backbone}, {"params": head}])

    def clip_norm(*_):
        torch.nn.utils.clip_grad_norm_(backbone + head, 0.05)

    def clip_value(*_):
        torch.nn.utils.clip_grad_value_(backbone + head, 0.01)

    def lower_rates(*_):
        for group in optimizer.param_groups:
            group["lr"] *= 0.9

    optimizer.register_step_pre_hook(clip_norm)
    optimizer.register_step_pre_hook(clip_value)
    optimizer.register_step_post_hook(lower_rates)
    for step in range(STEPS):
        run.step(step, optimizer)
    return optimizer


def main(file):
    saved = {}
    for scenario in [no_decay, backbone, one_cycle, frozen, added, scaled, hooked]:
        run = Run()
        optimizer = scenario(run)
        results = {name: tensor.detach() for name, tensor in run.model.state_dict().items()}
        for name, parameter in run.model.named_parameters():
            for entry, tensor in optimizer.state.get(parameter, {}).items():
                results[f"{name}.{entry}"] = tensor
        results["rates"] = torch.tensor(run.rates, dtype=torch.float64)
        saved |= {f"{scenario.__name__}.{name}": tensor for name, tensor in results.items()}
    save_file(saved, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
