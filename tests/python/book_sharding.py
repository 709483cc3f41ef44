"""The book's pictures of a sharded model: a step, compared with a trace of its collectives and with counted bytes, and the
calculator."""

import json
import re
from pathlib import Path

from picture import NARROW, expect, fits, focus, heights, summary, texts, without_scripts

# What core/examples/fully_shard.rs prints, and the bytes of the weights in its root and in each of its blocks.
PRINTED = (Path(__file__).parents[2] / "book/src/output/fully_shard.txt").read_text()
ROOT = 4 * 256 * 257
BLOCK = 4 * (1024 * 257 + 256 * 1025)
BLOCKS = 8
ADAM = "Adam, AdamW"


def check_step(picture, path):
    has_the_traced_collectives(picture, path)
    has_the_counted_bytes(picture)
    holds_whole_units(picture)
    shows_the_step(picture)


def has_the_traced_collectives(picture, path):
    traced = re.search(r"^a step: (.*)$", PRINTED, re.MULTILINE)[1].split(", ")
    expect("the collectives", collectives(step(picture, BLOCKS)), traced)
    # The chapter lists those of three blocks.
    listed = re.search(r"forward:  (.*)\nbackward: (.*)\n", path.read_text())
    expect("the chapter's collectives", ", ".join(collectives(step(picture, 3))), ", ".join(listed.groups()))


def has_the_counted_bytes(picture):
    printed = re.search(r"^FullyShard: (.*) between steps, at most (.*)$", PRINTED, re.MULTILINE).groups()
    totals = [sum(frame["bytes"].values()) for frame in step(picture, BLOCKS)]
    shown = picture.evaluate(f"{[totals[0], max(totals)]}.map(pictures.binarySize)")
    expect("the bytes between steps and at most", shown, list(printed))
    expect("the bytes after a step", totals[-1], totals[0])


def holds_whole_units(picture):
    """What each collective finds whole, of three blocks."""
    found = [frame["whole"] for frame in step(picture, 3)]
    forward = [["root"], ["root", 0], ["root", 1], ["root", 2]]
    backward = [["root", 2], ["root", 2, 1], ["root", 1], ["root", 1, 0], ["root", 0], ["root"], []]
    expect("whole units", found, [[], *forward, *backward, []])


def shows_the_step(picture):
    """Goes through the collectives with the arrow keys."""
    frames = step(picture, 3, root=2**19, block=2**21)
    focus(picture, "moment")
    for frame in frames:
        [total] = texts(picture, ".total")
        expect("the sum", total, picture.evaluate(f"pictures.binarySize({sum(frame['bytes'].values())})"))
        expect("whole cells", len(texts(picture, ".shards .whole")), 2 * (len(frame["whole"]) + (frame["gradient"] is not None)))
        exchanged = frame["kind"] in ["AG", "RS"]
        expect("cells that are exchanged", len(texts(picture, ".shards .now")), 2 * exchanged)
        picture.press("ArrowRight")
    expect("the last sentence", summary(picture), "The optimizer updates each rank's half. Nothing is exchanged.")
    picture.press("Home")
    for _ in range(6):
        picture.press("ArrowRight")
    expected = "Backward pass: all-gather of block 1. Each rank sends 1.00 MiB. Meanwhile block 2 computes its gradients."
    expect("a sentence", summary(picture), expected)
    for blocks in [3, 4]:
        jumps = len(heights(picture, "moment", len(step(picture, blocks)) - 1)) - 1
        expect(f"how often the page below {blocks} blocks jumps", jumps, 0)
        focus(picture, "blocks")
        picture.press("ArrowRight")
    picture.page.resize(1280, 700)
    expect("pixels that a low window cannot show", max(0, picture.evaluate("picture.offsetHeight") - 700), 0)
    picture.page.resize(NARROW)


def check_memory(picture, path):
    expect("the totals, and the table without scripts", texts(picture, ".total"), without_scripts(picture, path))
    expect("the summary", summary(picture), "FullyShard takes 13 % of DDP's memory, activations apart.")
    explains_what_is_printed(picture)
    obeys(picture)


def explains_what_is_printed(picture):
    """But for the root, which is whole too, and less than a hundredth."""
    numbers = (ROOT + BLOCKS * BLOCK) // 4
    model = {"parameters": numbers, "optimizer": ADAM, "precision": "f32", "ranks": 2, "unit": BLOCK / 4 / numbers}
    found = picture.evaluate(f"pictures.shardingMemory({json.dumps(model)})")
    peak = sum(found["FullyShard"].values())
    computed = [sum(found["DDP"].values()), peak - found["FullyShard"]["unreduced"], peak]
    printed = [float(amount) * 2**20 for amount in re.findall(r"([\d.]+) MiB", PRINTED)]
    for bytes, amount in zip(computed, [printed[0], *printed[2:]], strict=True):
        expect(f"whether {bytes} and {amount} bytes are about equal", abs(bytes / amount - 1) < 0.01, True)
    expect("ZeRO-1", sum(found["DDP with ZeRO-1"].values()), 16 * numbers)
    half = picture.evaluate(f"pictures.shardingMemory({json.dumps({**model, 'precision': 'bf16 policy'})})")["FullyShard"]
    expect("whole weights of 16 bits", 2 * half["units"], found["FullyShard"]["units"])


def obeys(picture):
    focus(picture, "ranks N")
    picture.press("End")
    fits(picture)
    expect("the totals of many ranks", texts(picture, ".total"), ["20 GB", "12 GB", "616 MB"])
    focus(picture, "optimizer")
    picture.press("ArrowUp")
    expect("the totals with momentum", texts(picture, ".total"), ["16 GB", "12 GB", "612 MB"])
    focus(picture, "precision")
    picture.press("ArrowDown")
    expect("the totals with the bf16 policy", texts(picture, ".total"), ["16 GB", "12 GB", "312 MB"])


def step(picture, blocks, root=ROOT, block=BLOCK):
    return picture.evaluate(f"pictures.shardedStep({{ blocks: {blocks}, ranks: 2, root: {root}, block: {block} }})")


def collectives(frames):
    return [f"{frame['kind']} {frame['unit']}" for frame in frames if "unit" in frame]
