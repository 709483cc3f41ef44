"""Moves the pictures with controls in the built book, by keyboard as a reader does, and compares their numbers with
those of the programs, which tests in Rust keep in snapshots and listings.

    python tests/python/book_pictures.py FOLDER    # fails at the first picture that is wrong
"""

import re
import sys
from pathlib import Path

import book_bert_memory
import book_cost
import book_elastic
import book_overlap
import book_ring
import book_sampler
import book_scaling
import book_sharding
import book_step
import book_stories
import browser
from picture import HIGH, NARROW, WIDE, Picture, buttons, expect, fits, fits_a_window, prints, says_values_once

CHECKS = [
    ("sampler.html", "sampler", book_sampler.check),
    ("all-reduce.html", "cost", book_cost.check),
    ("all-reduce.html", "ring", book_ring.check),
    ("data-parallel.html", "data-parallel", book_step.check),
    ("elastic.html", "elastic", book_elastic.check),
    ("ddp-inside.html", "overlap", book_overlap.check),
    ("bert-memory.html", "bert-memory", book_bert_memory.check),
    ("asynchronous-updates.html", "stories", book_stories.check),
    ("how-far-it-scales.html", "scaling", book_scaling.check),
    ("sharding.html", "sharding-memory", book_sharding.check_memory),
    ("sharding.html", "sharded-step", book_sharding.check_step),
]


def main(folder):
    # A `<` in a listing is `&lt;`, so that only elements are found.
    there = {
        (page.name, of_picture)
        for page in folder.glob("*.html")
        if page.name != "print.html"
        for of_picture in re.findall(r'<div[^>]* data-picture="([\w-]+)"', page.read_text())
    }
    expect("the pictures of the book", sorted(there), sorted((name, of_picture) for name, of_picture, _ in CHECKS))
    with browser.Browser() as reader:
        page = reader.page("about:blank")
        for name, of_picture, check in CHECKS:
            page.resize(NARROW)
            page.open((folder / name).as_uri())
            picture = Picture(page, of_picture)
            fits(picture)
            says_values_once(picture)
            check(picture, folder / name)
            prints(picture, folder / name)
            expect(f"{name}: what the console says", page.errors, [])
        page.resize(WIDE, HIGH)
        page.emulate(prefers_reduced_motion="reduce")
        for name, of_picture, _ in CHECKS:
            page.open((folder / name).as_uri())
            fits_a_window(Picture(page, of_picture))
            if shown := buttons(Picture(page, of_picture)):
                expect(f"{of_picture}: buttons for readers without motion", shown, book_ring.STEPS)


if __name__ == "__main__":
    if browser.installed() is None:
        print("not run: there is no Chromium or Chrome here")
    else:
        main(Path(sys.argv[1]))
