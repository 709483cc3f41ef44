"""The learning rates and momenta of schedules: what the example lr_schedules must equal. It takes the same
arguments.

    python tests/python/lr_schedulers.py 100 SGD '[0.1]' '{"StepLR": {"step_size": 30}}'
"""

import json
import math
import sys

import torch
from torch.optim import lr_scheduler, swa_utils


def function(values):
    return lambda argument: values[argument % len(values)]


def build(optimizer, description):
    ((name, arguments),) = description.items()
    arguments = {key: value for key, value in arguments.items() if key not in ("metrics", "epochs")}
    if "schedulers" in arguments:
        arguments["schedulers"] = [build(optimizer, part) for part in arguments["schedulers"]]
    if "scale_fn" in arguments:
        arguments["scale_fn"] = function(arguments["scale_fn"])
    if "lr_lambda" in arguments:
        values = arguments["lr_lambda"]
        each = isinstance(values[0], list)
        arguments["lr_lambda"] = [function(part) for part in values] if each else function(values)
    if name == "ChainedScheduler":
        return lr_scheduler.ChainedScheduler(arguments["schedulers"], optimizer)
    module = swa_utils if name == "SWALR" else lr_scheduler
    return getattr(module, name)(optimizer, **arguments)


def rates(epochs, name, lrs, description):
    groups = [{"params": [torch.zeros(1)], "lr": lr} for lr in json.loads(lrs)]
    optimizer = getattr(torch.optim, name)(groups)
    schedules = description if isinstance(description, list) else [(0, description)]
    schedulers = []
    for epoch in range(int(epochs)):
        schedulers += [(build(optimizer, of), of) for created, of in schedules if created == epoch]
        momenta = [group["momentum"] if "momentum" in group else group["betas"][0] for group in optimizer.param_groups]
        yield [[group["lr"], momentum] for group, momentum in zip(optimizer.param_groups, momenta)]
        optimizer.step()
        for scheduler, description in schedulers:
            step(scheduler, epoch, *description.values())


def step(scheduler, epoch, arguments):
    if "metrics" in arguments:
        metric = arguments["metrics"][epoch % len(arguments["metrics"])]
        # JSON has no infinity.
        scheduler.step(-math.inf if metric is None else metric)
    elif epoch < len(arguments.get("epochs", [])) and arguments["epochs"][epoch] is not None:
        scheduler.step(arguments["epochs"][epoch])
    else:
        scheduler.step()


def main(epochs, name, lrs, *descriptions):
    for description in descriptions:
        print(json.dumps(list(rates(epochs, name, lrs, json.loads(description)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
