"""Moves the pictures with controls in the built book, by keyboard as a reader does, and compares their numbers with
those of the programs, which tests in Rust keep in snapshots and listings.

    python tests/python/book_pictures.py FOLDER    # fails at the first picture that is wrong
"""

import json
import re
import sys
from pathlib import Path

import book_bert_memory
import book_overlap
import book_ring
import book_step
import book_stories
import browser
from picture import (
    NARROW,
    Picture,
    buttons,
    expect,
    fits,
    focus,
    prints,
    says_values_once,
    summary,
    without_scripts,
)

ROOT = Path(__file__).parents[2]

# The snapshots are named after their tests.
SHARES = ROOT / "core/src/data/sampler/snapshots"
SHARES /= "tch_parallel__data__sampler__tests__partitions_are_those_of_pytorch.snap"
SHARE = re.compile(
    r"len=(?P<len>\d+) world=(?P<ranks>\d+) seed=(?P<seed>\d+) epoch=(?P<epoch>\d+) "
    r"shuffle=(?P<shuffle>\w+) drop_last=(?P<dropLast>\w+)\n(?P<shards>(rank \d+: .*\n?)+)"
)

COSTS = ROOT / "async-update/src/exhibits/cost/snapshots"
COSTS /= "async_update__exhibits__cost__model__tests__the_books_picture_is_compared_with_these_costs.snap"
COST = re.compile(
    r"latency=(?P<latency>\S+) per_byte=(?P<perByte>\S+) bytes=(?P<bytes>\S+) "
    r"tree_overtakes_ring=(?P<overtakes>.*)\n(?P<lines>(\d+ \[.*\]\n?)+)"
)
# A few operations on doubles.
ROUNDING = 1e-12


def main(folder):
    checks = [("sampler.html", "sampler", sampler), ("all-reduce.html", "cost", cost)]
    checks += [("all-reduce.html", "ring", book_ring.check), ("data-parallel.html", "data-parallel", book_step.check)]
    checks += [("ddp-inside.html", "overlap", book_overlap.check)]
    checks += [("bert-memory.html", "bert-memory", book_bert_memory.check)]
    checks += [("asynchronous-updates.html", "stories", book_stories.check)]
    # A `<` in a listing is `&lt;`, so that only elements are found.
    there = {
        (page.name, of_picture)
        for page in folder.glob("*.html")
        if page.name != "print.html"
        for of_picture in re.findall(r'<div[^>]* data-picture="([\w-]+)"', page.read_text())
    }
    expect("the pictures of the book", sorted(there), sorted((name, of_picture) for name, of_picture, _ in checks))
    with browser.Browser() as reader:
        page = reader.page("about:blank")
        for name, of_picture, check in checks:
            page.resize(NARROW)
            page.open((folder / name).as_uri())
            picture = Picture(page, of_picture)
            fits(picture)
            says_values_once(picture)
            check(picture, folder / name)
            prints(picture, folder / name)
            expect(f"{name}: what the console says", page.errors, [])
        page.emulate(prefers_reduced_motion="reduce")
        stepped = [("all-reduce.html", "ring"), ("data-parallel.html", "data-parallel")]
        for name, of_picture in [*stepped, ("asynchronous-updates.html", "stories")]:
            page.open((folder / name).as_uri())
            expect(f"{name}: buttons for readers without motion", buttons(Picture(page, of_picture)), book_ring.STEPS)


def sampler(picture, path):
    shares = list(SHARE.finditer(SHARES.read_text()))
    for share in shares:
        arguments = {name: json.loads(share[name]) for name in ["len", "ranks", "seed", "epoch", "shuffle", "dropLast"]}
        expected = [json.loads(line.split(": ")[1]) for line in share["shards"].splitlines()]
        found = picture.evaluate(f"pictures.distributedSampler({json.dumps(arguments)}).shards")
        expect(f"the samples of each rank with {arguments}", found, expected)
    if not shares:
        sys.exit(f"{SHARES} has no samples")

    table = [re.sub(r"\D", "", row) for row in without_scripts(picture, path)]
    expect("the rows, and the table without scripts", rows(picture), table)
    focus(picture, "ranks")
    picture.press("ArrowRight")
    # PyTorch's order of 10 samples with seed 0, and its first two as padding.
    expect("the rows of four ranks", rows(picture), ["417539086241", "436", "192", "704", "581"])
    expect("the summary", summary(picture), "Each rank takes 3 samples. 2 positions of padding.")
    focus(picture, "drop_last")
    picture.press(" ")
    expect("the rows without padding", rows(picture), ["4175390862", "43", "19", "70", "58"])
    expect("the summary", summary(picture), "Each rank takes 2 samples. 2 samples left out.")
    focus(picture, "shuffle")
    picture.press(" ")
    expect("the rows in order", rows(picture), ["0123456789", "04", "15", "26", "37"])


def cost(picture, path):
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

    shown = [time.removesuffix(", fastest") for time in times(picture)]
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
    expect("the fastest of two ranks", [time for time in times(picture) if "fastest" in time], ["10 ms, fastest"] * 3)
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


def times(picture):
    return picture.evaluate("[...picture.querySelectorAll('td')].map(cell => cell.textContent)")


def markers(picture):
    return picture.evaluate("""[...picture.querySelectorAll('.dot')]
      .map(dot => ({ x: dot.cx.baseVal.value, y: dot.cy.baseVal.value }))""")


def rows(picture):
    """The numbers in each row of cells, one after the other."""
    return picture.evaluate("""[...picture.querySelectorAll('.cells')]
      .map(row => [...row.querySelectorAll('.cell')].map(cell => cell.textContent).join(''))""")


if __name__ == "__main__":
    if browser.installed() is None:
        print("not run: there is no Chromium or Chrome here")
    else:
        main(Path(sys.argv[1]))
