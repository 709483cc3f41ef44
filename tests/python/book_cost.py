"""The book's picture of what an update costs, compared with a snapshot of the model's tests in Rust."""

import json
import re
import sys
from pathlib import Path

from picture import expect, focus, summary, texts, without_scripts

# The snapshot is named after its test.
COSTS = Path(__file__).parents[2] / "async-update/src/exhibits/cost/snapshots"
COSTS /= "async_update__exhibits__cost__model__tests__the_books_picture_is_compared_with_these_costs.snap"
COST = re.compile(
    r"latency=(?P<latency>\S+) per_byte=(?P<perByte>\S+) bytes=(?P<bytes>\S+) "
    r"tree_overtakes_ring=(?P<overtakes>.*)\n(?P<lines>(\d+ \[.*\]\n?)+)"
)
# A few operations on doubles.
ROUNDING = 1e-12


def check(picture, path):
    equals_the_snapshot(picture)
    obeys(picture, path)


def equals_the_snapshot(picture):
    cases = list(COST.finditer(COSTS.read_text()))
    for case in cases:
        link = f"{{ latency: {case['latency']}, perByte: {case['perByte']} }}"
        overtakes = picture.evaluate(f"pictures.treeOvertakesRing({link}, {case['bytes']})")
        expect(f"where the tree overtakes the ring, {link}", overtakes, from_rust(case["overtakes"]))
        for line in case["lines"].splitlines():
            ranks, expected = line.split(" ", 1)
            found = picture.evaluate(f"Object.values(pictures.costs).map(cost => cost({link}, {ranks}, {case['bytes']}))")
            if not all(close(*pair) for pair in zip(found, from_rust(expected), strict=True)):
                sys.exit(f"with {link} and {ranks} ranks the picture has {found}, expected {expected}")
    if not cases:
        sys.exit(f"{COSTS} has no costs")


def obeys(picture, path):
    shown = [time.removesuffix(", fastest") for time in texts(picture, "td")]
    expect("the times, and the table without scripts", shown, without_scripts(picture, path))
    before = markers(picture)
    focus(picture, "ranks N")
    picture.press("ArrowRight")
    expected = "With 96 ranks the fastest is: hierarchical ring. The tree first overtakes the ring at 6,015 ranks."
    expect("the summary", summary(picture), expected)
    # The marker of each method goes to the right, and the server's rises.
    moved = list(zip(before, markers(picture), strict=True))
    expect("markers to the right", [old["x"] < new["x"] for old, new in moved], [True] * 5)
    expect("the server's marker rises", moved[0][0]["y"] > moved[0][1]["y"], True)
    picture.press("Home")
    expect("the fastest of two ranks", [time for time in texts(picture, "td") if "fastest" in time], ["10 ms, fastest"] * 3)
    focus(picture, "model K")
    picture.press("Home")
    ending = summary(picture).split(". ")[1]
    expect("the summary of a small model", ending, "The tree first overtakes the ring at 4 ranks.")


def from_rust(text):
    """Rust's `Some(1.5)` and `None`, and lists of them."""
    return json.loads(re.sub(r"Some\(([^)]*)\)", r"\1", text).replace("None", "null"))


def close(found, expected):
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= ROUNDING * expected


def markers(picture):
    return picture.evaluate("""[...picture.querySelectorAll('.dot')]
      .map(dot => ({ x: dot.cx.baseVal.value, y: dot.cy.baseVal.value }))""")
