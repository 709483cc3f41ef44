"""The book's picture of a step of DataParallel, compared with what `dp-basic` prints into the book."""

import re
from pathlib import Path

from picture import expect, focus, heights, summary, texts

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "book/src/output"
# An answer of `dp-basic` that the book does not show.
ANSWER = ROOT / "tests/tests/snapshots/programs__dp_basic__answer_about_ddp.snap"
TRACE = (OUTPUT / "trace_toy.txt").read_text()
EVENT = r"^(?P<step>[a-z_ ]+?) +cpu:(?P<device>\d) +(?:\[(?P<rows>\d+)[\d, ]*\] +)?(?P<bytes>[\d,]+)$"
EVENT = re.compile(EVENT, re.MULTILINE)
CHUNKS = re.compile(r"(?P<devices>\d+) devices: (?P<chunks>\[.*\]), (?P<at_work>\d+) at work")
# The kinds of things whose rows the trace prints as shapes.
SHAPES = {"scatter": "batch", "parallel_apply": "outputs", "gather": "outputs", "scatter gradients": "outputGradients"}


def check(picture, _):
    divides(picture)
    computed = copies(picture)
    steps(picture, computed)
    words(picture)
    stays(picture)


def divides(picture):
    """The chunks of six rows are those that the program prints, and others follow the same rule."""
    printed = list(CHUNKS.finditer((OUTPUT / "answers_S0.2.txt").read_text()))
    expect("the numbers of devices whose chunks are printed", [int(line["devices"]) for line in printed], [2, 3, 4])
    for line in printed:
        chunks = step(picture, int(line["devices"]), 6)["chunks"]
        sizes = [len(chunk) for chunk in chunks if chunk]
        expect(f"the chunks of {line['devices']} devices", str(sizes), line["chunks"])
        expect(f"how many of {line['devices']} devices work", len(sizes), int(line["at_work"]))
    for devices in range(1, 5):
        for rows in range(1, 13):
            chunks = step(picture, devices, rows)["chunks"]
            size = -(-rows // devices)
            expected = [list(range(rows))[size * device : size * (device + 1)] for device in range(devices)]
            expect(f"{rows} rows on {devices} devices", chunks, expected)


def copies(picture):
    """What is copied to each device, and how many rows it then has, are what the trace says of the toy."""
    events = [(e["step"], int(e["device"]), e["rows"], int(e["bytes"].replace(",", ""))) for e in EVENT.finditer(TRACE)]
    expect("the lines of the trace", len(events), 21)
    computed = step(picture, 4, 6)
    names = picture.evaluate("pictures.dataParallelSteps")
    expect("the steps", names, list(dict.fromkeys(name for name, *_ in events)))
    for name, frame in zip(names, computed["frames"][1:], strict=True):
        traced, found = {}, {}
        for _, device, rows, copied in (event for event in events if event[0] == name):
            traced[device] = traced.get(device, 0) + copied
            # The first device's chunk is a view of what it holds whole.
            if rows and (name == "gather" or device != 0):
                expect(f"rows on cpu:{device} after {name}", len(frame["held"][device][SHAPES[name]]), int(rows))
        for copy in frame["copies"]:
            found[copy["to"]] = found.get(copy["to"], 0) + copy["bytes"]
        expect(f"bytes copied to each device by {name}", found, {to: copied for to, copied in traced.items() if copied})
    idle = [f"cpu:{device}" for device, chunk in enumerate(computed["chunks"]) if not chunk]
    expect("the idle devices", idle, re.findall(r"^(cpu:\d) is idle", TRACE, re.MULTILINE))
    replica = [list(computed["frames"][number]["held"][1].values()) for number in [7, 9]]
    expected = [[[2, 3], ["copy"], [], [2, 3], [1]], [[], ["old copy"], [], [], []]]
    expect("what a replica holds in its backward pass, and after the step", replica, expected)
    # Four devices at work.
    weights = sum(copy["bytes"] for copy in step(picture, 4, 8)["frames"][2]["copies"])
    printed = re.search(r"([\d,]+) bytes of weights from", ANSWER.read_text())[1]
    expect("weights for four devices", f"{weights:,}", printed)
    return computed


def steps(picture, computed):
    """Goes through the steps with the arrow keys, on four devices."""
    [all_bytes] = re.findall(r"^all +([\d,]+)$", TRACE, re.MULTILINE)
    focus(picture, "devices")
    picture.press("ArrowRight")
    focus(picture, "step")
    total = 0
    for number, frame in enumerate(computed["frames"]):
        where = f"at step {number}"
        contents = [[" ".join(map(str, items)) for items in device.values()] for device in frame["held"]]
        expect(f"what the devices hold {where}", held(picture), contents)
        sent = {(copy["from"], copy["of"], item) for copy in frame["copies"] for item in copy["items"]}
        expect(f"how many cells are sent {where}", count(picture, "sent"), len(sent))
        expect(f"how many cells are new {where}", count(picture, "new"), new(computed["frames"], number))
        lines = [f"cpu:{copy['from']} → cpu:{copy['to']}: {copy['bytes']:,} bytes" for copy in frame["copies"]]
        expect(f"the copies {where}", texts(picture, ".copies li"), lines)
        now = sum(copy["bytes"] for copy in frame["copies"])
        total += now
        expected = f"Copied in this step: {now:,} bytes. So far: {total:,} of {all_bytes} bytes."
        expect(f"the sum {where}", texts(picture, ".sum"), [expected])
        picture.press("ArrowRight")
    expect("the sum at the end", f"{total:,}", all_bytes)


def words(picture):
    """The sentences, with an idle device and with one device."""
    last = "9. optimizer step: The optimizer updates the original on cpu:0. The replicas are now out of date."
    expect("the last sentence", summary(picture), last)
    picture.press("Home")
    picture.press("ArrowRight")
    chunks = "1. scatter: The batch is cut into chunks of 2, 2 and 2 rows. No chunk is left for cpu:3."
    expect("the sentence about chunks", summary(picture), chunks)
    focus(picture, "devices")
    picture.press("Home")
    expect("the sentence about one device", summary(picture), "1. scatter: The batch is one chunk, for cpu:0.")
    expect("what one device copies", [len(frame["copies"]) for frame in step(picture, 1, 6)["frames"]], [0] * 10)


def stays(picture):
    """The most rows fit a narrow screen on any number of devices, and the page below does not jump."""
    focus(picture, "rows")
    picture.press("End")
    for devices in range(1, 5):
        expect(f"how often the page below {devices} devices jumps", len(heights(picture, "step", 9)) - 1, 0)
        focus(picture, "devices")
        picture.press("ArrowRight")


def step(picture, devices, rows):
    return picture.evaluate(f"pictures.dataParallel({{ devices: {devices}, rows: {rows} }})")


def new(frames, number):
    """How many things the devices did not hold before the step. A copy that is out of date is not new."""
    before = frames[max(number - 1, 0)]["held"]
    gained = [set(now[kind]) - set(old[kind]) for now, old in zip(frames[number]["held"], before) for kind in now]
    return sum(len(items - {"old copy"}) for items in gained)


def held(picture):
    """For each device the words of its cells, kind by kind."""
    return picture.evaluate("""[...picture.querySelectorAll('thead th')].map((_, device) =>
      [...picture.querySelectorAll('tbody tr')].map(row =>
        [...row.cells[device + 1].querySelectorAll('.cell:not(.absent)')].map(cell => cell.textContent).join(' ')))""")


def count(picture, kind):
    return picture.evaluate(f"picture.querySelectorAll('.cell.{kind}').length")
