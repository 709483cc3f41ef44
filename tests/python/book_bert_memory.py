"""The book's picture of BERT's memory, compared with the bytes that the program counts."""

import json
import re
from pathlib import Path

from picture import expect, fits, focus, summary, texts, without_scripts

ROOT = Path(__file__).parents[2]
BYTES = ROOT / "tests/tests/snapshots/programs__bert_memory__bytes.snap"
COUNTED = re.compile(r"^(\S+) +cpu:(\d)((?: +\d+){5})$", re.MULTILINE)
# `compare`'s two tables, and what two ranks with ZeroRedundancyOptimizer print.
COMPARED = ROOT / "book/src/output/bert_memory.txt"
SHARED_OUT = ROOT / "book/src/output/zero_redundancy.txt"
# The tensors of the perceptron in that listing.
PERCEPTRON = [784 * 512, 512, 512 * 512, 512, 512 * 10, 10]
ARTICLES = {"tokens": 163, "words": 22000, "pairs": 50}
LASTING = ["weights", "gradients", "state", "buckets"]
NOT_SHOWN = ["apex", "fsdp"]
ZERO = "ddp with ZeroRedundancyOptimizer"


def check(picture, path):
    equals_what_is_counted(picture)
    equals_the_table(picture)
    shares_out(picture)
    keeps_its_colours(picture)
    obeys(picture, path)


def memory(picture, **model):
    return picture.evaluate(f"pictures.bertMemory({json.dumps(model)})")


def between_steps(device):
    return sum(device[part] for part in LASTING)


def at_the_peak(device):
    return sum(device[part] for part in ["weights", "state", "buckets", "outputs"])


def equals_what_is_counted(picture):
    """Between steps to the byte. At the peak, all devices have the same besides, but for the batch."""
    sizes = {"hidden": 32, "layers": 2, "tokens": 32, "words": 2000, "pairs": 4}
    counted = [line for line in COUNTED.findall(BYTES.read_text()) if line[0] not in NOT_SHOWN]
    lines = [(method, int(index), [*map(int, counts.split())]) for method, index, counts in counted]
    expect("lines of counted bytes", len(lines), 24)
    runs = []
    for line in lines:
        # A run begins with its first device.
        runs = [*runs, [line]] if line[1] == 0 else [*runs[:-1], [*runs[-1], line]]
    rest = []
    for run in runs:
        method = run[0][0]
        found = memory(picture, method=method, devices=len(run), **sizes)
        expect(f"whether the formula holds for {method}", found["holds"], True)
        for device, (_, index, counts) in zip(found["devices"], run, strict=True):
            live, peak, *parts = counts
            where = f"{method}, device {index} of {len(run)}"
            expect(f"{where}: parts", [device[part] for part in ["weights", "gradients", "state"]], parts)
            expect(f"{where}: between steps", between_steps(device), live)
            rest.append((peak - at_the_peak(device), len(run)))
    least = min(rest)[0]
    for bytes, devices in rest:
        # Tokens, segments and labels of the pairs, and the small head's outputs, as in bert_memory.rs.
        batch = 4 * devices * (8 * (3 * 32 + 1) + 8) + 64
        expect(f"{bytes} bytes besides, at least {least}, and a batch of {batch}", bytes - least < batch, True)


def equals_the_table(picture):
    tables = COMPARED.read_text().split("\n\n")
    amounts = [[re.findall(r"[\d.]+ (?:B|[KMG]iB)", line) for line in table.splitlines()] for table in tables]
    # Those of the methods that the picture shows.
    amounts = [line for table in amounts for line in [line for line in table if line][:8]]
    expect("lines of the tables", len(amounts), 16)
    methods = ["data-parallel", "output-device", "custom-criterion", "ddp"]
    sizes = {"hidden": 64, "layers": 2, "tokens": 64, "words": 8192, "pairs": 16}
    found = [memory(picture, method=method, devices=2, **sizes) for method in methods]
    devices = [device for each in found for device in each["devices"]]
    shown = [[between_steps(device), *(device[part] for part in LASTING)] for device in devices]
    shown = picture.evaluate(f"{json.dumps(shown)}.map(bytes => bytes.map(pictures.binarySize))")
    expect("the table between steps", shown, amounts[:8])
    # The chapter: besides the shares there are 32 MiB of other activations on every device.
    shown = [f"{(device['outputs'] >> 20) + 32} MiB" for device in devices]
    expect("activations, outputs", shown, [line[1] for line in amounts[8:]])


def shares_out(picture):
    printed = [int(bytes) for bytes in re.findall(r"state has (\d+) bytes", SHARED_OUT.read_text())]
    found = [picture.evaluate(f"pictures.zeroRedundancy({PERCEPTRON}, {ranks})") for ranks in [1, 2]]
    expect("Adam's state with and without sharing", [found[0][0], found[1][0], found[0][0], found[1][1]], printed)
    sizes = {"hidden": 256, "layers": 8, **ARTICLES}
    for ranks in range(1, 9):
        whole, shared = (memory(picture, method=method, devices=ranks, **sizes)["devices"] for method in ["ddp", ZERO])
        expect(f"the state of {ranks} ranks together", sum(device["state"] for device in shared), whole[0]["state"])
    # The chapter names the two that have the largest tensors.
    states = [device["state"] for device in shared[:2]]
    expect("the largest shares", picture.evaluate(f"{states}.map(pictures.binarySize)"), ["43.0 MiB"] * 2)


def obeys(picture, path):
    expect("the totals, and the table without scripts", texts(picture, ".total"), without_scripts(picture, path))
    shares = "9 shares of the output, 684 MiB each"
    expected = f"The first device needs 6.14 GiB more than any other: {shares}, and Adam's state."
    expect("the summary", summary(picture), expected)
    model = {"method": "data-parallel", "devices": 4, "hidden": 256, "layers": 8, **ARTICLES}
    totals = [at_the_peak(device) for device in memory(picture, **model)["devices"]]
    lengths = widths(picture)
    for total, length in zip(totals, lengths, strict=True):
        expect("a bar's length", round(length / lengths[0], 2), round(total / totals[0], 2))
    focus(picture, "method")
    picture.press("ArrowDown")
    shares = "9 shares of the output more than any other, 684 MiB each, 6.01 GiB in all"
    expected = f"The second device has {shares}. Adam's state, 134 MiB, stays on the first."
    expect("an output device", summary(picture), expected)
    picture.press("ArrowDown")
    expect("a criterion", summary(picture), "The first device needs 134 MiB more than any other: Adam's state.")
    picture.press("ArrowDown")
    expect("ranks", summary(picture), "All ranks need the same, to the byte.")
    expect("their totals", len(set(texts(picture, ".total"))), 1)
    picture.press("ArrowDown")
    expect("ZeRO", summary(picture).split(":")[1], " tensors are not cut, so shares of Adam's state differ.")
    focus(picture, "moment")
    picture.press("ArrowDown")
    parts = [re.sub(" [0-9].*", "", text).strip() for text in texts(picture, ".device:first-child .amounts > span")]
    expect("the parts between steps", parts, ["weights", "gradients", "Adam's state", "buckets"])
    picture.press("ArrowUp")
    focus(picture, "devices k")
    picture.press("End")
    fits(picture)
    expect("ranks", len(texts(picture, ".total")), 8)
    focus(picture, "pairs / device")
    picture.press("Home")
    expect("the formula's limit", summary(picture).split(". ")[1].split(":")[0], "The formula does not hold here")
    expect("totals that are not known", set(texts(picture, ".total")), {"?"})


def keeps_its_colours(picture):
    """Also for readers who have chosen the colours of all pages."""
    picture.page.emulate(forced_colors="active")
    bars = "[...picture.querySelectorAll('.device:first-of-type .bar span')]"
    colours = picture.evaluate(f"{bars}.map(bar => getComputedStyle(bar).backgroundColor)")
    expect("the colours of the parts", [len(colours), len(set(colours))], [3, 3])
    picture.page.emulate()


def widths(picture):
    """The length of each bar, all parts together."""
    return picture.evaluate("""[...picture.querySelectorAll('.bar')].map(bar =>
      [...bar.children].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0))""")
