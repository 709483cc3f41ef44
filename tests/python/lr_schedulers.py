"""The learning rates of schedules: what the example lr_schedules must equal. It takes the same arguments.

    python tests/python/lr_schedulers.py 100 0.1 '{"StepLR": {"step_size": 30}}'
"""

import json
import sys

import torch
from torch.optim import lr_scheduler


def build(optimizer, description):
    ((name, arguments),) = description.items()
    if name == "SequentialLR":
        parts = [build(optimizer, part) for part in arguments["schedulers"]]
        arguments = arguments | {"schedulers": parts}
    if name == "LambdaLR":
        values = arguments["lr_lambda"]
        arguments = {"lr_lambda": lambda epoch: values[epoch % len(values)]}
    return getattr(lr_scheduler, name)(optimizer, **arguments)


def rates(epochs, lr, description):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=float(lr))
    scheduler = build(optimizer, json.loads(description))
    for _ in range(int(epochs)):
        yield optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()


def main(epochs, lr, *descriptions):
    for description in descriptions:
        print(json.dumps(list(rates(epochs, lr, description))))


if __name__ == "__main__":
    main(*sys.argv[1:])
