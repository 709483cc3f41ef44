"""Moves the pictures with controls in the built book, by keyboard as a reader does, and compares their numbers with
those of the programs, which tests in Rust keep in snapshots.

    python tests/python/book_pictures.py FOLDER    # fails at the first picture that is wrong
"""

import json
import re
import sys
from pathlib import Path

import browser

ROOT = Path(__file__).parents[2]
NARROW = 400
# Pixels, on a narrow screen too.
SMALLEST_TEXT = 12

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

LAYOUT = """(() => {
  const picture = document.querySelector('[data-picture]');
  const hasText = element => [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const size = element => parseFloat(getComputedStyle(element).fontSize) * (element.getScreenCTM?.().a ?? 1);
  return {
    wider: Math.max(...[document.querySelector('main'), picture].map(part => part.scrollWidth - part.clientWidth)),
    smallest: Math.min(...[...picture.querySelectorAll('*')].filter(hasText).map(size)),
  };
})()"""


def main(folder):
    with browser.Browser() as reader:
        page = reader.page("about:blank")
        for name, check in [("sampler.html", sampler), ("all-reduce.html", cost)]:
            page.resize(NARROW)
            page.open((folder / name).as_uri())
            layout = page.evaluate(LAYOUT)
            expect(f"{name}: pixels off the screen", layout["wider"], 0)
            if layout["smallest"] < SMALLEST_TEXT:
                sys.exit(f"{name}: text of {layout['smallest']:.1f} px in a picture on a screen of {NARROW} px")
            check(page, without_scripts(folder / name))
            expect(f"{name}: what the console says", page.errors, [])


def without_scripts(path):
    """The second column of the table that a page has in the picture's place until its script runs."""
    table = re.search(r'data-picture=.*?</table>', path.read_text(), re.DOTALL)[0]
    return re.findall(r"<tr><td.*?</td><td[^>]*>(.*?)</td>", table)


def sampler(page, table):
    shares = list(SHARE.finditer(SHARES.read_text()))
    for share in shares:
        arguments = {name: json.loads(share[name]) for name in ["len", "ranks", "seed", "epoch", "shuffle", "dropLast"]}
        expected = [json.loads(line.split(": ")[1]) for line in share["shards"].splitlines()]
        found = page.evaluate(f"pictures.distributedSampler({json.dumps(arguments)}).shards")
        expect(f"the samples of each rank with {arguments}", found, expected)
    if not shares:
        sys.exit(f"{SHARES} has no samples")

    expect("the rows, and the table without scripts", rows(page), [re.sub(r"\D", "", row) for row in table])
    focus(page, "ranks")
    page.press("ArrowRight")
    # PyTorch's order of 10 samples with seed 0, and its first two as padding.
    expect("the rows of four ranks", rows(page), ["417539086241", "436", "192", "704", "581"])
    expect("the summary", summary(page), "Each rank takes 3 samples. 2 positions of padding.")
    focus(page, "drop_last")
    page.press(" ")
    expect("the rows without padding", rows(page), ["4175390862", "43", "19", "70", "58"])
    expect("the summary", summary(page), "Each rank takes 2 samples. 2 samples left out.")
    focus(page, "shuffle")
    page.press(" ")
    expect("the rows in order", rows(page), ["0123456789", "04", "15", "26", "37"])


def cost(page, table):
    cases = list(COST.finditer(COSTS.read_text()))
    for case in cases:
        link = f"{{ latency: {case['latency']}, perByte: {case['perByte']} }}"
        overtakes = page.evaluate(f"pictures.treeOvertakesRing({link}, {case['bytes']})")
        expect(f"where the tree overtakes the ring, {link}", overtakes, from_rust(case["overtakes"]))
        for line in case["lines"].splitlines():
            ranks, expected = line.split(" ", 1)
            found = page.evaluate(f"Object.values(pictures.costs).map(cost => cost({link}, {ranks}, {case['bytes']}))")
            if not all(close(*pair) for pair in zip(found, from_rust(expected), strict=True)):
                sys.exit(f"with {link} and {ranks} ranks the picture has {found}, expected {expected}")
    if not cases:
        sys.exit(f"{COSTS} has no costs")

    shown = [time.removesuffix(", fastest") for time in times(page)]
    expect("the times, and the table without scripts", shown, table)
    before = markers(page)
    focus(page, "ranks N")
    page.press("ArrowRight")
    expected = "With 96 ranks the fastest is: hierarchical ring. The tree first overtakes the ring at 6,015 ranks."
    expect("the summary", summary(page), expected)
    # The marker of each method goes to the right, and the server's rises.
    moved = list(zip(before, markers(page), strict=True))
    expect("markers to the right", [old["x"] < new["x"] for old, new in moved], [True] * 5)
    expect("the server's marker rises", moved[0][0]["y"] > moved[0][1]["y"], True)
    page.press("Home")
    expect("the fastest of two ranks", [time for time in times(page) if "fastest" in time], ["10 ms, fastest"] * 3)
    focus(page, "model K")
    page.press("Home")
    ending = summary(page).split(". ")[1]
    expect("the summary of a small model", ending, "The tree first overtakes the ring at 4 ranks.")


def from_rust(text):
    """Rust's `Some(1.5)` and `None`, and lists of them."""
    return json.loads(re.sub(r"Some\(([^)]*)\)", r"\1", text).replace("None", "null"))


def close(found, expected):
    if found is None or expected is None:
        return found is expected
    return abs(found - expected) <= ROUNDING * expected


def times(page):
    return page.evaluate("[...document.querySelectorAll('.controlled td')].map(cell => cell.textContent)")


def markers(page):
    return page.evaluate("""[...document.querySelectorAll('.controlled .dot')]
      .map(dot => ({ x: dot.cx.baseVal.value, y: dot.cy.baseVal.value }))""")


def rows(page):
    """The numbers in each row of cells, one after the other."""
    return page.evaluate("""[...document.querySelectorAll('.controlled .cells')]
      .map(row => [...row.querySelectorAll('.cell')].map(cell => cell.textContent).join(''))""")


def summary(page):
    return page.evaluate("document.querySelector('.controlled [role=status]').textContent")


def focus(page, label):
    """Goes to a control with the Tab key."""
    page.evaluate("document.querySelector('.controlled input').focus()")
    for _ in range(10):
        if page.evaluate("document.activeElement.closest('label')?.firstChild.textContent") == label:
            return
        page.press("Tab")
    sys.exit(f"the Tab key does not reach the control {label}")


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found}, expected {expected}")


if __name__ == "__main__":
    if browser.installed() is None:
        print("not run: there is no Chromium or Chrome here")
    else:
        main(Path(sys.argv[1]))
