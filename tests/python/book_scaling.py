"""The book's calculator of a step, compared with a snapshot of the simulator's tests in Rust."""

import json
import re
import sys
from pathlib import Path

from picture import expect, focus, summary, texts, without_scripts

STEPS = Path(__file__).parents[2] / "scaling/src/snapshots"
STEPS /= "scaling__curves__tests__the_books_calculator_is_compared_with_these_steps.snap"
STEP = re.compile(r"^(?P<network>.+): (?P<numbers>[\d. ]+) = (?P<times>.+)$", re.MULTILINE)
# Sums over some hundred tensors and ranks.
ROUNDING = 1e-9


def check(picture, path):
    steps = list(STEP.finditer(STEPS.read_text()))
    for step in steps:
        names = ["samples", "tflops", "gigabits", "bytes", "ranks"]
        values = dict(zip(names, map(float, step["numbers"].split()), strict=True), network=step["network"])
        found = picture.evaluate(f"Object.values(pictures.trainingStep({json.dumps(values)}))")
        times = [float(time) for time in step["times"].split()]
        if any(abs(a - b) > ROUNDING * sum(times) for a, b in zip(found, times, strict=True)):
            sys.exit(f"for {step[0]} the calculator has {found}")
    expect("steps in the snapshot", len(steps), 18)
    expect("the times, and the table without scripts", texts(picture, "td"), without_scripts(picture, path))
    focus(picture, "ranks N")
    picture.press("Home")
    expect("one rank", summary(picture).split(":")[0], "A step of 1 rank takes 126 ms, with an efficiency of 100.0 %")
