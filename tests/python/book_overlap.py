"""The book's picture of buckets and overlap: its buckets compared with those that the Reducer reports in the book, its
times with a sum over all buckets that can hold one up."""

import itertools
import json
import re
from pathlib import Path

from picture import expect, fits, focus, summary, texts, without_scripts

BUCKETS = Path(__file__).parents[2] / "book/src/output/gradient_buckets.txt"
MODEL = r"^(the tutorial's|a larger) model, (.*)$"
REPORTED = re.compile(rf"{MODEL}|^  from step 2: buckets of (\[.*\]) bytes$", re.MULTILINE)
# The layers of core/examples/gradient_buckets.rs. The last has no bias.
MODELS = {"the tutorial's": [784, 128, 128, 10], "a larger": [1024] * 9}
MIB = 2**20
ROUNDING = 1e-12

# The picture's values at the beginning.
BEGINNING = {"layers": 24, "bytes": 4 * MIB, "seconds": 0.002, "capMb": None, "ranks": 64}
BEGINNING["link"] = {"latency": 20e-6, "perByte": 1e-10}


def check(picture, path):
    equals_the_reducers_buckets(picture)
    equals_the_sum(picture)
    says_what_is_computed(path, caps(picture))
    obeys(picture, path)


def equals_the_reducers_buckets(picture):
    lines = list(REPORTED.finditer(BUCKETS.read_text()))
    expect("lines of models and buckets", [line[3] is None for line in lines], [True, False] * 5)
    for (model, options, _), (*_, sizes) in zip(map(re.Match.groups, lines[::2]), map(re.Match.groups, lines[1::2])):
        cap = None if options == "default buckets" else float(options.removeprefix("bucket_cap_mb "))
        found = picture.evaluate(f"pictures.buckets({gradients(MODELS[model])}, {json.dumps(cap)})")
        expect(f"the buckets of {model} model, {options}", [sum(bucket) for bucket in found], json.loads(sizes))


def gradients(sizes):
    """The bytes of gradients in the order in which they are ready: from the last layer on, a bias before its weight."""
    layers = [[4 * outputs, 4 * inputs * outputs] for inputs, outputs in itertools.pairwise(sizes)]
    layers[-1] = layers[-1][1:]
    return [bytes for layer in reversed(layers) for bytes in layer]


def equals_the_sum(picture):
    queues = set()
    changes = [{}, {"capMb": 1}, {"capMb": 10}, {"capMb": 25}, {"capMb": 1000}, {"layers": 1}, {"layers": 22}]
    changes += [{"bytes": MIB}, {"bytes": MIB // 4, "capMb": 1}, {"seconds": 0.05}, {"seconds": 0.0001, "capMb": 5}]
    changes += [{"ranks": 2, "capMb": 1}, {"link": {"latency": 0, "perByte": 1e-9}}]
    for change in changes:
        case = {**BEGINNING, **change}
        expected, length = timeline(case)
        found = picture.evaluate(f"pictures.overlap({json.dumps(case)})")
        buckets = found.pop("buckets")
        names = ["bytes", "begin", "complete", "start", "end"]
        close(f"the buckets with {change}", [[bucket[name] for name in names] for bucket in buckets], expected)
        names = ["backward", "exchange", "hidden", "end"]
        close(f"the totals with {change}", [[found[name] for name in names]], [length])
        queues |= {start > complete + ROUNDING for _, _, complete, start, _ in expected[1:]}
    expect("cases with and without a queue", queues, {True, False})


def timeline(case):
    """The buckets by counting layers, and their exchanges from the longest of all chains that end with them: a chain
    begins when a bucket is complete, and all that follow leave one right after the other."""
    layers, seconds = case["layers"], case["seconds"]
    first, others = (1, 25) if case["capMb"] is None else (case["capMb"], case["capMb"])
    counts = [-(-first * MIB // case["bytes"]), -(-others * MIB // case["bytes"])]
    bounds = [0, *range(counts[0], layers, counts[1]), layers]
    spans = list(itertools.pairwise(bounds))
    sizes = [(end - begin) * case["bytes"] for begin, end in spans]
    hops = 2 * (case["ranks"] - 1)
    link = case["link"]
    times = [hops * link["latency"] + hops * size * link["perByte"] / case["ranks"] for size in sizes]
    completes = [end * seconds for _, end in spans]
    chains = [[completes[at] + sum(times[at : last + 1]) for at in range(last + 1)] for last in range(len(spans))]
    ends = [max(of) for of in chains]
    rows = [
        [size, begin * seconds, end * seconds, arrival - time, arrival]
        for size, (begin, end), time, arrival in zip(sizes, spans, times, ends, strict=True)
    ]
    # All that comes after the backward pass is exchange, without a gap: its last bucket is complete.
    backward = layers * seconds
    return rows, [backward, sum(times), backward + sum(times) - ends[-1], ends[-1]]


def close(what, found, expected):
    expect(f"how many of {what}", len(found), len(expected))
    for line, numbers in zip(found, expected, strict=True):
        near = [abs(one - other) <= ROUNDING * max(1, abs(other)) for one, other in zip(line, numbers, strict=True)]
        expect(f"{what}: {line} against {numbers}", near, [True] * len(numbers))


def caps(picture):
    """The slider's values. It ends where it began."""
    focus(picture, "bucket_cap_mb")
    chosen = shown_cap(picture)
    picture.press("Home")
    values = []
    while (value := shown_cap(picture)) not in values:
        values.append(value)
        picture.press("ArrowRight")
    for _ in values[values.index(chosen) + 1 :]:
        picture.press("ArrowLeft")
    expect("the cap after all others", shown_cap(picture), chosen)
    return [None if value == "default" else int(value.replace(",", "")) for value in values]


def shown_cap(picture):
    return texts(picture, "output")[3]


def says_what_is_computed(path, caps):
    """The chapter's statements: when `backward` returns, by cap, and which cap is the best."""
    words = " ".join(re.sub("<.*?>", "", path.read_text()).split())
    ends = {cap: returns_after({"capMb": cap}) for cap in caps}
    expect("the best cap", min(ends, key=ends.get), 10)
    said = {
        f"backward returns after {1e3 * ends[100]:.1f} ms.": 1,
        f"backward returns after {1e3 * ends[1]:.1f} ms, later than without any overlap.": 1,
        f"10 is the best of the slider’s values: {1e3 * ends[10]:.0f} ms.": 1,
    }
    expect("statements of the chapter", {statement: words.count(statement) for statement in said}, said)


def returns_after(change):
    return timeline({**BEGINNING, **change})[1][-1]


def obeys(picture, path):
    expect("the table, and the table without scripts", texts(picture, "td"), without_scripts(picture, path))
    expected = "5 buckets. The backward pass hides 73.9 % of the exchange. 1 of them waits in a queue."
    expect("the summary", summary(picture), expected)
    # Once in each lane, and once on the axis.
    expect("how often 0 is written", texts(picture, "svg text").count("0"), 3)
    drawn(picture, {})
    focus(picture, "bucket_cap_mb")
    picture.press("ArrowLeft")
    picture.press("ArrowLeft")
    expect("the cap", shown_cap(picture), "10")
    drawn(picture, {"capMb": 10})
    expected = "8 buckets. The backward pass hides 87.5 % of the exchange. No bucket waits in a queue."
    expect("the summary without a queue", summary(picture), expected)
    picture.press("Home")
    drawn(picture, {"capMb": 1})
    expected = "24 buckets. The backward pass hides 57.3 % of the exchange. 23 of them wait in a queue."
    expect("the summary of tiny buckets", summary(picture), expected)
    fits(picture)
    picture.press("End")
    drawn(picture, {"capMb": 1000})
    expected = "The only bucket is complete when the backward pass ends, so nothing is hidden."
    expect("the summary of one bucket", summary(picture), expected)
    expected = ["96 MiB", "48 ms", "22.3 ms", "nothing", "22.3 ms", "70.3 ms"]
    expect("the table of one bucket", texts(picture, "td"), expected)
    picture.press("Home")
    for label, key in [("layer's size", "Home"), ("layer's time", "End"), ("bandwidth 1/β", "Home")]:
        focus(picture, label)
        picture.press(key)
    # Layers of a quarter of a MiB, four to a bucket, and a link of 100 MB/s.
    expect("small layers", texts(picture, "td")[:2], ["6 × 1 MiB", "2.4 s"])
    focus(picture, "ranks N")
    picture.press("End")
    focus(picture, "latency α")
    picture.press("End")
    fits(picture)
    focus(picture, "layers")
    picture.press("Home")
    expect("one layer", texts(picture, "td")[:2], ["0.25 MiB", "100 ms"])
    fits(picture)


def drawn(picture, change):
    """The drawn spans begin and end where the numbers say."""
    rows, totals = timeline({**BEGINNING, **change})
    spans = picture.evaluate("""[...picture.querySelectorAll('svg .span')].map(({ x, width }) =>
      [x.baseVal.value, x.baseVal.value + width.baseVal.value])""")
    edges = picture.evaluate("""[...picture.querySelectorAll('svg .lane')].map(({ x, width }) =>
      [x.baseVal.value, x.baseVal.value + width.baseVal.value])""")
    expect("the lanes", edges[1:], edges[:1])
    left, right = edges[0]
    expected = [moments for row in rows for moments in [row[1:3], row[3:]]]
    found = [[(at - left) / (right - left) * totals[-1] for at in span] for span in spans]
    expect(f"the spans with {change}", rounded(found), rounded(expected))


def rounded(rows):
    return [[round(number, 6) for number in row] for row in rows]
