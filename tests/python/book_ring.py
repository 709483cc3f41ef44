"""The book's picture of a ring, compared with the tables that `ring show` prints into the book."""

import re
from pathlib import Path

from picture import STEP, buttons, expect, focus, heights, summary

# What `ring show` prints, one file for each half. `b(2,1)*` is a sum that has just been received.
RINGS = [Path(__file__).parents[2] / f"book/src/output/ring_{half}.txt" for half in ["scatter_reduce", "all_gather"]]
HELD = re.compile(r"^\d+(?:  +[a-z](?:\d|\(\d(?:,\d)*\))\*?)+$")
SENT = re.compile(r"^\d+ +chunk (\d+) \(\w\) +GPU \d+ +chunk \d+")

# A clock that the test winds: what is repeated is called by `tick`.
CLOCK = """(() => {
  window.setInterval = repeated => { window.tick = repeated; return 1; };
  window.clearInterval = () => { window.tick = null; };
})()"""

# The stepper's buttons without that which plays.
STEPS = ["first", "previous", "next", "last"]


def check(picture, _):
    states = computes(picture)
    steps(picture, states)
    plays(picture)
    stays(picture)


def computes(picture):
    """The states of five GPUs, which are those that the program prints. Every ring ends with complete sums."""
    printed = [line.rstrip() for path in RINGS for line in path.read_text().splitlines()]
    held = [re.findall(r"[a-z]([\d(),]+)(\*?)", line) for line in printed if HELD.match(line)]
    sums = [[[int(rank) for rank in re.findall(r"\d", sum)] for sum, _ in line] for line in held]
    arrived = [[chunk for chunk, (_, star) in enumerate(line) if star] for line in held]
    sent = [int(match[1]) for match in map(SENT.match, printed) if match]
    # Five lines for each state, of which there are nine, and for the first iteration of each half.
    expect("the lines of the printed tables", [len(held), len(sent)], [45, 10])
    states = picture.evaluate("pictures.ringAllReduce(5)")
    expect("what the GPUs hold", [own for state in states for own in state["contents"]], sums)
    expect("what arrives", [[chunk] for state in states for chunk in state["received"]], arrived[5:])
    expect("what is sent first", states[1]["sent"] + states[5]["sent"], sent)
    for ranks in range(2, 9):
        *earlier, last = picture.evaluate(f"pictures.ringAllReduce({ranks})")
        expect(f"the iterations of {ranks} ranks", len(earlier), 2 * (ranks - 1))
        sums = [[sorted(sum) for sum in own] for own in last["contents"]]
        expect(f"the parts in the sums of {ranks} ranks", sums, [[list(range(ranks))] * ranks] * ranks)
        expect(f"ranks of {ranks} with other sums", [own for own in last["contents"] if own != last["contents"][0]], [])
    return states


def steps(picture, states):
    """Goes through the iterations with the arrow keys and with buttons."""
    focus(picture, "iteration")
    for iteration in range(1, 9):
        picture.press("ArrowRight")
        state, where = states[iteration], f"in iteration {iteration}"
        contents = [" ".join(map(str, sum)) for own in state["contents"] for sum in own]
        expect(f"the cells {where}", cells(picture, "*"), contents)
        for kind in ["sent", "received"]:
            expect(f"the cells {kind} {where}", columns(picture, kind), state[kind])
        complete = [sum for sum in contents if len(sum) == 9]
        expect(f"the complete cells {where}", cells(picture, ".whole"), complete)
        if iteration == 3:
            sends = "GPU 0 sends chunk 3 (d) to GPU 1, GPU 1 chunk 4 (e) to GPU 2, and so on."
            expected = f"Iteration 3 of 8, scatter-reduce: {sends} Each adds what it receives."
            expect("the summary", summary(picture), expected)
    for button, expected in [("first", "0 of 8"), ("next", "1 of 8"), ("last", "8 of 8"), ("previous", "7 of 8")]:
        focus(picture, button)
        picture.press(" ")
        expect(f"the iteration after the button {button}", iteration_of(picture), expected)
    # mdBook's own arrow keys would turn the page.
    address = picture.evaluate("location.pathname")
    focus(picture, "next")
    for key, expected in [("ArrowRight", "8 of 8"), ("ArrowLeft", "7 of 8")]:
        picture.press(key)
        expect(f"the page after {key} on a button", picture.evaluate("location.pathname"), address)
        expect(f"the iteration after {key} on a button", iteration_of(picture), expected)


def plays(picture):
    """Winds the clock while the picture plays, and pauses it."""
    picture.page.evaluate(CLOCK)
    tick = "window.tick !== null && (window.tick(), true)"
    focus(picture, "play")
    # The last iteration follows at once, and nothing after it.
    picture.press(" ")
    expect("the player at the end", player(picture), ["8 of 8", "play"])
    expect("whether it still plays at the end", picture.evaluate(tick), False)
    picture.press(" ")
    expect("the player from the beginning", player(picture), ["0 of 8", "pause"])
    expect("whether it plays", [picture.evaluate(tick) for _ in range(3)], [True] * 3)
    picture.press(" ")
    expect("whether it plays in a pause", picture.evaluate(tick), False)
    expect("the player in a pause", player(picture), ["3 of 8", "play"])
    picture.press(" ")
    expect("the iterations until it stops", [picture.evaluate(tick) for _ in range(5)], [True] * 4 + [False])
    expect("the player at the end", player(picture), ["8 of 8", "play"])
    # A smaller ring has fewer iterations.
    focus(picture, "GPUs N")
    picture.press("Home")
    expect("the iteration of two GPUs", iteration_of(picture), "2 of 2")


def stays(picture):
    """The largest ring fits a narrow screen, and is as high in every iteration."""
    focus(picture, "GPUs N")
    picture.press("End")
    expect("how often the page below jumps", len(heights(picture, "iteration", 14)) - 1, 0)


def cells(picture, kind):
    return picture.evaluate(f"[...picture.querySelectorAll('tbody td:is({kind})')].map(cell => cell.textContent)")


def columns(picture, kind):
    """The chunks of the cells of a kind, from the first GPU to the last."""
    return picture.evaluate(f"[...picture.querySelectorAll('tbody td.{kind}')].map(cell => cell.cellIndex - 1)")


def iteration_of(picture):
    return picture.evaluate(STEP)


def player(picture):
    """The iteration, and what the button that plays says."""
    return [iteration_of(picture), buttons(picture)[2]]
