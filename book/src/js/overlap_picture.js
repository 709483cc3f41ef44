"use strict";

/* A backward pass and the exchange of its buckets, with sliders: two lanes over time, and a table of totals. */
{
  const { svg, choice, slider, line, text, rowsTable, roundNumbers, MIB, count, time, decimalSize } = pictures;
  const LAYER_MIB = [0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128];
  // PyTorch's default, null, is 25 but for the first bucket.
  const CAPS = [1, 2, 5, 10, 20, null, 25, 50, 100, 200, 500, 1000];
  const RANKS = Array.from({ length: 10 }, (_, power) => 2 ** (power + 1));
  const COLOURS = ["a", "b", "c"];

  const mebibytes = amount => `${count(amount)} MiB`;

  const controls = () => ({
    layers: slider("layers", 1, 24, 24),
    mib: choice("layer's size", LAYER_MIB, 4, mebibytes),
    milliseconds: choice("layer's time", roundNumbers(0.1, 100), 2, value => time(value * 1e-3)),
    capMb: choice("bucket_cap_mb", CAPS, null, cap => cap === null ? "default" : count(cap)),
    ranks: choice("ranks N", RANKS, 64, count),
    microseconds: choice("latency α", roundNumbers(1, 1000), 20, value => time(value * 1e-6)),
    megabytes: choice("bandwidth 1/β", roundNumbers(100, 1e6), 1e4, value => `${decimalSize(value * 1e6)}/s`),
  });

  const WIDTH = 400;
  const HEIGHT = 168;
  const EDGE = { left: 78, right: 380 };
  const LANE = 34;
  const LANES = { backward: 28, exchange: 88 };
  const AXIS = 142;
  // A digit fits into a span of this width.
  const DIGIT = 10;

  const span = (number, y, begin, end) => [
    svg("rect", { class: `span ${COLOURS[number % COLOURS.length]}`, x: begin, y, width: end - begin, height: LANE }),
    ...(end - begin < DIGIT * String(number).length ? [] : [text("", [(begin + end) / 2, y + 22], number)]),
  ];

  const lane = (name, y) => [
    text("end", [EDGE.left - 5, y + 22], name),
    svg("rect", { class: "lane", x: EDGE.left, y, width: EDGE.right - EDGE.left, height: LANE }),
  ];

  const axis = (x, end) => {
    const step = roundNumbers(1e-6, end).find(step => end <= 5 * step);
    const ticks = Array.from({ length: Math.floor(end / step) + 1 }, (_, at) => at * step);
    return ticks.flatMap(tick => [
      line("grid", [x(tick), LANES.backward], [x(tick), LANES.exchange + LANE]),
      text("", [x(tick), AXIS], tick === 0 ? "0" : time(tick)),
    ]);
  };

  /** A bucket in both lanes, and a line from its end in the first to its start in the second. */
  const drawn = (x, { begin, complete, start, end }, number) => [
    ...span(number, LANES.backward, x(begin), x(complete)),
    ...span(number, LANES.exchange, x(start), x(end)),
    line("faint", [x(complete), LANES.backward + LANE], [x(start), LANES.exchange]),
  ];

  const chart = ({ buckets, backward, end }) => {
    const x = seconds => EDGE.left + (EDGE.right - EDGE.left) * seconds / end;
    const label = "the backward pass and the exchange of each bucket over time; the table has the totals";
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      ...Object.entries(LANES).flatMap(([name, y]) => lane(name, y)),
      ...axis(x, end),
      text("", [(EDGE.left + EDGE.right) / 2, HEIGHT - 4], "time"),
      ...buckets.flatMap((bucket, number) => drawn(x, bucket, number)),
      line("update", [x(backward), LANES.backward - 8], [x(end), LANES.backward - 8]),
      text("end", [EDGE.right, LANES.backward - 14], "not hidden"));
  };

  /** Sizes in order, with equal neighbours counted. */
  const sizes = buckets => {
    const runs = [];
    for (const { bytes } of buckets) {
      if (runs.at(-1)?.bytes === bytes) runs.at(-1).length += 1;
      else runs.push({ bytes, length: 1 });
    }
    return runs.map(({ bytes, length }) => (length === 1 ? "" : `${length} × `) + mebibytes(bytes / MIB)).join(", ");
  };

  const table = ({ buckets, backward, exchange, hidden, end }) => {
    const rows = {
      "buckets": sizes(buckets),
      "backward pass": time(backward),
      "exchange": time(exchange),
      "hidden": hidden === 0 ? "nothing" : time(hidden),
      "not hidden": time(end - backward),
      "backward returns after": time(end),
    };
    return rowsTable(Object.entries(rows).map(([name, words]) => ({ name, words })));
  };

  const summary = ({ buckets, exchange, hidden }) => {
    if (buckets.length === 1) return "The only bucket is complete when the backward pass ends, so nothing is hidden.";
    const share = Number((100 * hidden / exchange).toPrecision(3));
    const waiting = buckets.filter(({ complete, start }) => start > complete).length;
    const queue = waiting === 0 ? "No bucket waits in a queue."
      : `${waiting} of them ${waiting === 1 ? "waits" : "wait"} in a queue.`;
    return `${buckets.length} buckets. The backward pass hides ${share} % of the exchange. ${queue}`;
  };

  pictures.enhance("overlap", controls, ({ mib, milliseconds, microseconds, megabytes, ...values }) => {
    const link = { latency: microseconds * 1e-6, perByte: 1e-6 / megabytes };
    const timeline = pictures.overlap({ ...values, bytes: mib * MIB, seconds: milliseconds * 1e-3, link });
    return { summary: summary(timeline), elements: [chart(timeline), table(timeline)] };
  });
}
