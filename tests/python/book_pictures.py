"""Moves the pictures with controls in the built book, by keyboard as a reader does, and compares their numbers with those of
the programs, which tests in Rust keep in snapshots.

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

SHARES = ROOT / "core/src/data/sampler/snapshots/tch_parallel__data__sampler__tests__partitions_are_those_of_pytorch.snap"
SHARE = re.compile(
    r"len=(?P<len>\d+) world=(?P<ranks>\d+) seed=(?P<seed>\d+) epoch=(?P<epoch>\d+) "
    r"shuffle=(?P<shuffle>\w+) drop_last=(?P<dropLast>\w+)\n(?P<shards>(rank \d+: .*\n?)+)"
)

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
        for name, check in [("sampler.html", sampler)]:
            page.resize(NARROW)
            page.open((folder / name).as_uri())
            layout = page.evaluate(LAYOUT)
            expect(f"{name}: pixels off the screen", layout["wider"], 0)
            if layout["smallest"] < SMALLEST_TEXT:
                sys.exit(f"{name}: text of {layout['smallest']:.1f} px in a picture on a screen of {NARROW} px")
            check(page)
            expect(f"{name}: what the console says", page.errors, [])


def sampler(page):
    shares = list(SHARE.finditer(SHARES.read_text()))
    for share in shares:
        arguments = {name: json.loads(share[name]) for name in ["len", "ranks", "seed", "epoch", "shuffle", "dropLast"]}
        expected = [json.loads(line.split(": ")[1]) for line in share["shards"].splitlines()]
        found = page.evaluate(f"pictures.distributedSampler({json.dumps(arguments)}).shards")
        expect(f"the samples of each rank with {arguments}", found, expected)
    if not shares:
        sys.exit(f"{SHARES} has no samples")

    expect("the ranks' rows", rows(page)[1:], ["4502", "1384", "7961"])
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
