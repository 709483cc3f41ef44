"""The book's picture of the two asynchronous stories, compared with what `async-update trace` prints into the book."""

import json
import re
from pathlib import Path

from picture import draws_the_still, expect, focus, heights, summary, texts

OUTPUT = Path(__file__).parents[2] / "book/src/output"
ETAS = [0.0625, 0.125, 0.25]
PAIR = re.compile(r"\((-?[\d.]+), (-?[\d.]+)\)")
EVENT = re.compile(r"^(GPU\d)  (reads|writes) (θ_.*?) +(\(.*?\))(?: +(\d+))?$", re.MULTILINE)


def check(picture, path):
    equals_what_is_printed(picture)
    keeps_what_the_chapter_says(picture)
    steps(picture)
    last_without_scripts(picture, path)
    stays(picture)


def story(picture, updates, eta=0.25):
    return picture.evaluate(f"pictures.story({{ updates: {updates}, eta: {eta} }})")


def step(picture, gpu, theta, eta=0.25):
    return picture.evaluate(f"pictures.stepOf('{gpu}', {json.dumps(theta)}, {eta})")


def loss(picture, theta):
    return picture.evaluate(f"pictures.lossOf('GPU1', {json.dumps(theta)})")


def add(a, b):
    return [a[0] + b[0], a[1] + b[1]]


def subtract(a, b):
    return [a[0] - b[0], a[1] - b[1]]


def equals_what_is_printed(picture):
    """Every line of both listings, with all digits, and every pair of numbers in them."""
    for case, updates in [("case1", 1), ("case2", 4)]:
        printed = (OUTPUT / f"async_{case}.txt").read_text()
        told = story(picture, updates)
        versions, events = told["versions"], told["events"]
        expect(f"{case}: η", re.findall(r"η = ([\d.]+)\.", printed), ["0.25"])
        gpus = picture.evaluate("pictures.gpus")
        steps = {gpu: step(picture, gpu, versions[0]) for gpu in gpus}
        # Columns are as wide as what they hold.
        rows = [" ".join(line.split()) for line in re.findall(r"^GPU\d +\d .*", printed, re.MULTILINE)]
        table = [f"{gpu} {its['h']} {pair(its['m'])} {pair(steps[gpu])}" for gpu, its in gpus.items()]
        expect(f"{case}: the GPUs", rows, table)
        expect(f"{case}: the events", [list(line) for line in EVENT.findall(printed)], in_words(versions, events))
        *_, theta, end = versions
        meanwhile = "1 update" if updates == 1 else f"{updates} updates"
        sentence = re.search(r"^GPU1's step was made for θ_a, and (.*) later it is added to (θ_.)\.$", printed, re.MULTILINE)
        expect(f"{case}: how old GPU1's step is", list(sentence.groups()), [meanwhile, name(updates)])
        together = told["synchronous"]
        if case == "case1":
            half = [each / 2 for each in subtract(together, versions[0])]
            last = [end, together, subtract(end, together), add(versions[0], half)]
        else:
            last = [steps["GPU1"], step(picture, "GPU1", theta), end, told["fresh"]]
        pairs = [each for gpu, its in gpus.items() for each in (its["m"], steps[gpu])]
        pairs += [versions[event["version"]] for event in events] + last
        found = [[float(number) for number in match] for match in PAIR.findall(printed)]
        expect(f"{case}: all pairs of numbers", pairs, found)


def name(version):
    return f"θ_{chr(ord('a') + version)}"


def pair(theta):
    return f"({', '.join(f'{each:g}' if each == int(each) else repr(each) for each in theta)})"


def in_words(versions, events):
    """The events as the program prints them."""
    words = []
    for event in events:
        version, read = event["version"], event.get("read")
        what, stale = name(version), ""
        if event["does"] == "writes":
            what += f" = {name(version - 1)} + ΔP{event['gpu'][-1]}({name(read)})"
            stale = str(event["staleness"])
        words.append([event["gpu"], event["does"], what, pair(versions[version]), stale])
    return words


def keeps_what_the_chapter_says(picture):
    """For which numbers of updates the loss on GPU1's data rises, and for which it falls further than with a fresh step."""
    rises, falls_further = {}, {}
    for eta in ETAS:
        rises[eta], falls_further[eta] = [], []
        for updates in range(1, 9):
            told = story(picture, updates, eta)
            *_, theta, end = told["versions"]
            before, after, fresh = (loss(picture, each) for each in [theta, end, told["fresh"]])
            rises[eta] += [updates] if after > before else []
            falls_further[eta] += [updates] if after < fresh else []
            lands = told["synchronous"] == end
            expect(f"whether {updates} updates with η = {eta} end as one together", lands, updates == 1)
    expect("updates after which the loss rises", rises, {0.0625: [], 0.125: [8], 0.25: [3, 4, 5, 6, 7, 8]})
    expect("updates after which a stale step is better", falls_further[0.25], [1, 2])


def steps(picture):
    """Goes through case 2 with the arrow keys, and back with buttons."""
    told = story(picture, 4)
    versions, events = told["versions"], told["events"]
    focus(picture, "event")
    for done in range(len(events) + 1):
        where = f"after {done} events"
        writes = [event for event in events[:done] if event["does"] == "writes"]
        reads = [event for event in events[:done] if event["does"] == "reads"]
        expect(f"the versions {where}", dots(picture), [rounded(theta) for theta in versions[: len(writes) + 1]])
        expect(f"who added the steps {where}", added(picture), [event["gpu"] for event in writes])
        expect(f"the bars {where}", count(picture, "rect:is(.bar, .faint)"), len(reads))
        expect(f"the finished bars {where}", count(picture, ".bar"), len(writes))
        stale = [str(event["staleness"]) for event in writes]
        expect(f"the staleness {where}", staleness(picture), stale)
        # GPU1's arrow stays where its step was computed; that of GPU2 becomes part of the path.
        computing = len(reads) - len(writes)
        expect(f"the arrows {where}", count(picture, ".head"), computing + (done == len(events)))
        picture.press("ArrowRight")
    start, end = arrow(picture)
    expect("where GPU1's step was computed", [start, end], [[4, -2], add([4, -2], step(picture, "GPU1", [4, -2]))])
    expected = "GPU1 adds its step: θ_f = θ_e + ΔP1(θ_a) = (-2.1016, 2.2344). Staleness 4. "
    expected += "GPU1's loss rises from 0.0809 to 5.94; a fresh step would give 0.0202."
    expect("the last sentence", summary(picture), expected)
    for button, words in [
        ("first", "At the beginning, θ is θ_a = (4, -2)."),
        ("next", "GPU1 reads θ_a = (4, -2) and begins to compute its step. Meanwhile GPU2 will make 4 updates."),
        ("last", expected),
        (
            "previous",
            "GPU2 adds its step: θ_e = θ_d + ΔP2(θ_d) = (-0.1016, 0.7344). Staleness 0: θ_d was still the newest version.",
        ),
    ]:
        focus(picture, button)
        picture.press(" ")
        expect(f"the sentence after the button {button}", summary(picture), words)
    focus(picture, "GPU2 makes")
    picture.press("Home")
    focus(picture, "event")
    picture.press("End")
    expected = "GPU1 adds its step: θ_c = θ_b + ΔP1(θ_a) = (0.5, 0.5). Staleness 1. "
    expected += "GPU1's loss falls from 10.3 to 0.5; a fresh step would give 2.56. "
    expect("the sentence of case 1", summary(picture), expected + "This is the synchronous result.")
    # The other circle is in the key.
    circles = places(picture, ".aim")
    expect("the circle around the end of case 1", dots(picture)[-1] in circles, True)


def last_without_scripts(picture, path):
    """Until its script runs, the page shows the end of case 2 as the script draws it."""
    focus(picture, "GPU2 makes")
    for _ in range(3):
        picture.press("ArrowRight")
    focus(picture, "event")
    picture.press("End")
    draws_the_still(picture, path)


def stays(picture):
    """The most updates fit a narrow screen. The page below does not jump, whichever event and learning rate."""
    found = set()
    for eta in reversed(ETAS):
        expect("the learning rate", texts(picture, "output")[1], str(eta))
        for updates in range(1, 9):
            focus(picture, "GPU2 makes")
            picture.press("Home" if updates == 1 else "ArrowRight")
            found |= heights(picture, "event", 2 * updates + 2)
        focus(picture, "learning rate")
        picture.press("ArrowLeft")
    expect("how often the page below jumps", len(found) - 1, 0)


def count(picture, selector):
    return picture.evaluate(f"picture.querySelectorAll('.stories {selector}').length")


def added(picture):
    """The GPUs whose steps make up the path, from the first to the last. A cross is drawn with lines as well."""
    lines = "[...picture.querySelectorAll('line:is(.gpu1, .gpu2).solid')]"
    return picture.evaluate(f"{lines}.slice(4).map(line => line.classList[0].toUpperCase())")


def staleness(picture):
    """The numbers in the last row of the timeline, after the row's name."""
    last = "Math.max(...rows.map(text => text.y.baseVal[0].value))"
    rows = "(rows => rows.filter(text => text.y.baseVal[0].value === LAST).slice(1).map(text => text.textContent))"
    rows = rows.replace("LAST", last)
    return picture.evaluate(f"{rows}([...picture.querySelectorAll('.stories text')])")


# A function from a point of the drawing to θ. It takes the scale from the crosses, which are the minima of the two GPUs.
PLANE = """(() => {
  const cross = gpu => {
    const line = picture.querySelector(`line.${gpu}.solid`);
    const middle = (one, other) => (one.baseVal.value + other.baseVal.value) / 2;
    return [middle(line.x1, line.x2), middle(line.y1, line.y2)];
  };
  const [one, other] = [cross('gpu1'), cross('gpu2')];
  const { GPU1, GPU2 } = pictures.gpus;
  const rounded = value => Math.round(value * 50) / 50;
  return point => point.map((value, at) =>
    rounded(GPU1.m[at] + (value - one[at]) / (other[at] - one[at]) * (GPU2.m[at] - GPU1.m[at])));
})()"""


def places(picture, selector):
    """Where the circles of a kind are, as values of θ."""
    circles = f"[...picture.querySelectorAll('.stories {selector}')]"
    return picture.evaluate(f"{circles}.map(dot => {PLANE}([dot.cx.baseVal.value, dot.cy.baseVal.value]))")


def dots(picture):
    return places(picture, ".dot")


def rounded(theta):
    """As far as one can tell from a drawing."""
    return [round(each * 50) / 50 for each in theta]


def arrow(picture):
    line = "picture.querySelector('.gpu1.dashed')"
    ends = [f"[{line}.x{end}.baseVal.value, {line}.y{end}.baseVal.value]" for end in [1, 2]]
    return [picture.evaluate(f"{PLANE}({end})") for end in ends]
