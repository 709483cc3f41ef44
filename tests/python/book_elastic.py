"""The book's picture of a rank that is killed and replaced, compared with a snapshot of the groups of such a job, which a
test in Rust keeps."""

import re
from pathlib import Path

from picture import buttons, draws_the_still, expect, focus, heights, summary, texts

ROOT = Path(__file__).parents[2]
GROUPS = ROOT / "tests/tests/snapshots/programs__elastic__the_books_picture_is_compared_with_these_groups.snap"
EXAMPLE = (ROOT / "core/examples/elastic_counts.rs").read_text()
BATCH = int(re.search(r"const BATCH: usize = (\d+);", EXAMPLE)[1])


def check(picture, path):
    has_the_groups_of_a_job(picture)
    loses_no_sample(picture)
    steps(picture, path)
    draws_the_still(picture, path)
    stays(picture)


def has_the_groups_of_a_job(picture):
    """Who is which rank, and which step a new group begins with."""
    names = picture.evaluate("pictures.elasticProcesses")
    groups, last, lost = [], [], 0
    for moment in computing(picture, 1):
        if moment["group"] != last:
            begins = {1: "the first step", lost: "the step that failed"}.get(moment["step"], "the step after the last")
            groups.append(f"{' '.join(names[process] for process in moment['group'])} from {begins}")
        last = moment["group"]
        lost = moment["step"] if moment["kind"] == "kill" else lost
    expect("the groups", groups, GROUPS.read_text().split("---\n")[2].splitlines())


def loses_no_sample(picture):
    """Whichever rank is killed, each step is committed once, with all its samples, by all who are there."""
    for killed in range(3):
        done = [moment for moment in computing(picture, killed) if moment["kind"] != "kill"]
        expect("the steps that are committed", [moment["step"] for moment in done], [1, 2, 3, 4, 5])
        expect("the samples of a step", {moment["samples"] * len(moment["group"]) for moment in done}, {BATCH})
        has = [{moment["committed"][process] for process in moment["group"]} for moment in done]
        expect("the steps that each has committed", has, [{moment["step"]} for moment in done])
        others = [process for process in range(3) if process != killed]
        meetings = [moment for moment in moments(picture, killed) if moment["kind"] == "meet"]
        met = [(moment["group"], moment["source"], moment["receivers"]) for moment in meetings]
        replaced = [3 if process == killed else process for process in range(3)]
        expect("who meets, and who gets the state", met, [(others, others[0], []), (replaced, others[0], [3])])


def steps(picture, path):
    """Goes through the moments with the arrow keys. The times are the chapter's."""
    told = r"next step after ([\d.]+ s) at\s+most in 200 kills,.* and the new rank took\s+part after ([\d.]+ s)"
    again, all_train = re.search(told, path.read_text(), re.DOTALL).groups()
    focus(picture, "moment")
    shown = []
    for moment in moments(picture, 1):
        for process in moment["group"]:
            if moment["kind"] == "meet":
                committed = moment["committed"][process]
                shown.append("–" if committed is None else str(committed))
            elif "samples" in moment and (moment["kind"] != "kill" or process != 1):
                shown.append(str(moment["samples"]))
        found = texts(picture, ".past text:not(.strong, .left, .end)")
        expect("the numbers in bars", found, shown)
        picture.press("ArrowRight")
    expect("the times", texts(picture, ".past .end"), [f"{again} at most", all_train])
    expect("the last sentence", summary(picture), f"All train, {all_train} after the kill. No sample was lost, and none was used twice.")
    expect("the roles", texts(picture, "svg > .left")[2:], ["A", "rank 0", "B", "killed", "C", "rank 2", "D", "rank 1"])
    picture.press("Home")
    expect("what is yet to come", texts(picture, ".past .strong"), ["1"])
    for _ in range(4):
        picture.press("ArrowRight")
    expected = f"They do step 2 again, with all its 60 samples: 30 each. In 200 kills, they had done it {again} after the kill at most."
    expect("a sentence", summary(picture), expected)
    expect("the buttons", buttons(picture), ["first", "previous", "play", "next", "last"])
    picture.press("End")


def stays(picture):
    """Whichever rank is killed, the page below does not jump."""
    found = set()
    for killed in ["Home", "ArrowRight", "ArrowRight"]:
        focus(picture, "killed rank")
        picture.press(killed)
        found |= heights(picture, "moment", 8)
    expect("how often the page below jumps", len(found) - 1, 0)


def moments(picture, killed):
    return picture.evaluate(f"pictures.elastic({killed})")


def computing(picture, killed):
    """The moments in which a step is computed."""
    return [moment for moment in moments(picture, killed) if "step" in moment]
