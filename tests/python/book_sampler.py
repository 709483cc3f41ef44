"""The book's picture of who sees which samples, compared with a snapshot of the sampler's tests in Rust."""

import json
import re
import sys
from pathlib import Path

from picture import expect, focus, summary, without_scripts

# The snapshot is named after its test.
SHARES = Path(__file__).parents[2] / "core/data/src/sampler/snapshots"
SHARES /= "tch_parallel_data__sampler__tests__partitions_are_those_of_pytorch.snap"
SHARE = re.compile(
    r"len=(?P<len>\d+) world=(?P<ranks>\d+) seed=(?P<seed>\d+) epoch=(?P<epoch>\d+) "
    r"shuffle=(?P<shuffle>\w+) drop_last=(?P<dropLast>\w+)\n(?P<shards>(rank \d+: .*\n?)+)"
)


def check(picture, path):
    equals_the_snapshot(picture)
    obeys(picture, path)


def equals_the_snapshot(picture):
    shares = list(SHARE.finditer(SHARES.read_text()))
    for share in shares:
        arguments = {name: json.loads(share[name]) for name in ["len", "ranks", "seed", "epoch", "shuffle", "dropLast"]}
        expected = [json.loads(line.split(": ")[1]) for line in share["shards"].splitlines()]
        found = picture.evaluate(f"pictures.distributedSampler({json.dumps(arguments)}).shards")
        expect(f"the samples of each rank with {arguments}", found, expected)
    if not shares:
        sys.exit(f"{SHARES} has no samples")


def obeys(picture, path):
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


def rows(picture):
    """The numbers in each row of cells, one after the other."""
    return picture.evaluate("""[...picture.querySelectorAll('.cells')]
      .map(row => [...row.querySelectorAll('.cell')].map(cell => cell.textContent).join(''))""")
