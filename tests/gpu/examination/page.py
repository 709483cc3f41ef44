"""The page that says what passed, what failed and what was not possible."""

import itertools
import os
import time

from examination import speed
from examination.part import FAILED, NOT_POSSIBLE, PASSED

# Lines of each output of what failed.
LINES = 40


def page(machine, results, rows, seconds, is_dry):
    """The whole page, as text."""
    where = ", ".join(sorted(set(machine.gpus))) or "no GPU"
    how = "started without a GPU, up to the first call of CUDA" if is_dry else "examined"
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    counts = ", ".join(
        f"{sum(result.outcome == outcome for result in results)} {outcome}"
        for outcome in [PASSED, FAILED, NOT_POSSIBLE]
    )
    lines = [
        f"tch-parallel, {how}",
        f"{len(machine.gpus)} GPUs ({where}), {os.cpu_count()} CPU cores,"
        f" PyTorch {machine.torch} with CUDA {machine.cuda}, {moment}",
        f"{counts}; {seconds:.0f} s",
    ]
    for topic, of_topic in itertools.groupby(results, lambda result: result.part.topic):
        lines += ["", topic]
        for result in of_topic:
            reason = f": {result.reason}" if result.reason else ""
            lines.append(f"  {result.outcome:18}{result.part.name}{reason} ({result.seconds:.0f} s)")
    if rows:
        lines += ["", *speed.table(rows)]
    return "\n".join(lines) + "\n"


def details(results):
    """The commands of what failed, and the end of their output."""
    for result in results:
        if result.outcome != FAILED:
            continue
        yield f"\n== {result.part.name}: {result.reason}\n"
        for process in result.processes:
            yield f"$ {process.command}\nexit code {process.code}\n"
            for said in [process.stdout(), process.stderr()]:
                yield "".join(f"    {line}\n" for line in said.splitlines()[-LINES:])
