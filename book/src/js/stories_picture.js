"use strict";

/* The stories event by event: the plane of θ above, and below it a timeline of what is computed for which version. */
{
  const { svg, choice, stepper, line, text, rounded, count, gpus, lossOf, stepOf } = pictures;
  const LETTERS = "abcdefghij";
  const lastEvent = updates => 2 * updates + 2;

  const controls = () => ({
    updates: choice("GPU2 makes", [1, 2, 3, 4, 5, 6, 7, 8], 4, updates => count(updates, "update")),
    eta: choice("learning rate", [0.0625, 0.125, 0.25], 0.25),
    event: stepper("event", ({ updates }) => lastEvent(updates)),
  });

  const circle = (kind, [x, y], r) => svg("circle", { class: kind, cx: rounded(x), cy: rounded(y), r });
  const rect = (kind, [x, y], width, height) =>
    svg("rect", { class: kind, x: rounded(x), y: rounded(y), width: rounded(width), height });
  const moved = ([x, y], right, down) => [x + right, y + down];

  const WIDTH = 400;
  const UNIT = 46;
  const PLANE = { left: -4, right: WIDTH / UNIT - 4, bottom: -2.6, top: 3.5 };
  const FLOOR = (PLANE.top - PLANE.bottom) * UNIT;
  const at = ([x, y]) => [(x - PLANE.left) * UNIT, (PLANE.top - y) * UNIT];

  const grid = () => [-2, 0, 2].flatMap(tick => [
    line("grid", at([PLANE.left, tick]), at([PLANE.right, tick])),
    line("grid", at([tick, PLANE.bottom]), at([tick, PLANE.top])),
    text("left", moved(at([PLANE.left, tick]), 3, -3), tick),
    text("left", moved([at([tick, 0])[0], FLOOR], 4, -5), tick),
  ]);

  const cross = (kind, point) => [
    line(kind, moved(point, -5, -5), moved(point, 5, 5)), line(kind, moved(point, -5, 5), moved(point, 5, -5)),
  ];

  const minima = () => [
    ...cross("gpu1 solid", at(gpus.GPU1.m)), text("left", moved(at(gpus.GPU1.m), 10, -5), "GPU1"),
    ...cross("gpu2 solid", at(gpus.GPU2.m)), text("end", moved(at(gpus.GPU2.m), -10, 5), "GPU2"),
  ];

  const key = () => {
    const row = (number, words) => text("left", [218, 18 + 19 * number], words);
    const middle = number => 13 + 19 * number;
    return [
      ...cross("plain solid", [199, middle(0)]), row(0, "a GPU's minimum"),
      line("plain dashed", [188, middle(1)], [210, middle(1)]), row(1, "step, where computed"),
      line("plain solid", [188, middle(2)], [210, middle(2)]), row(2, "step, where added"),
      circle("plain aim", [199, middle(3)], 9), row(3, "synchronous update"),
    ];
  };

  const kindOf = gpu => gpu.toLowerCase();
  const readsOf = events => events.filter(({ does }) => does === "reads");
  const writesOf = events => events.filter(({ does }) => does === "writes");

  const arrow = (gpu, from, to) => {
    const angle = Math.atan2(to[1] - from[1], to[0] - from[0]);
    const corner = turned => moved(to, -9 * Math.cos(angle + turned), -9 * Math.sin(angle + turned));
    const points = [to, corner(0.4), corner(-0.4)].map(point => point.map(rounded).join()).join(" ");
    return [line(`${kindOf(gpu)} dashed`, from, to), svg("polygon", { class: `${kindOf(gpu)} head`, points })];
  };

  /** The steps that are being computed, and those that were added elsewhere, drawn from where their GPU has read. */
  const computed = ({ versions }, done, { eta }) => readsOf(done).flatMap(({ gpu, version }) => {
    const write = done.find(event => event.gpu === gpu && event.read === version);
    if (write?.staleness === 0) return [];
    const from = versions[version];
    const step = stepOf(gpu, from, eta);
    return arrow(gpu, at(from), at([from[0] + step[0], from[1] + step[1]]));
  });

  const added = ({ versions }, writes) => writes.map(({ gpu, version }) =>
    line(`${kindOf(gpu)} solid`, at(versions[version - 1]), at(versions[version])));

  /** The versions so far. What GPU1 makes goes above the path, what GPU2 makes below. */
  const points = ({ versions }, writes) => versions.slice(0, writes.length + 1).flatMap((theta, version) => {
    const isNewest = version === writes.length;
    const isGpu1s = version > 0 && writes[version - 1].gpu === "GPU1";
    const label = isGpu1s ? moved(at(theta), 13, -8) : moved(at(theta), -8, 17);
    return [
      circle(isNewest ? "dot newest" : "dot", at(theta), 4), text(isNewest ? "strong" : "", label, LETTERS[version]),
    ];
  });

  const plane = (story, done, values) => {
    const writes = writesOf(done);
    return [
      rect("lane", [0, 0], WIDTH, rounded(FLOOR)), ...grid(), ...key(), ...minima(),
      circle("plain aim", at(story.synchronous), 9),
      ...computed(story, done, values), ...added(story, writes), ...points(story, writes),
    ];
  };

  const ROWS = { θ: 310, GPU2: 337, GPU1: 367, staleness: 397 };
  const HEIGHT = 406;
  const BEGIN = 80;

  /** When a version is made, in updates of GPU2. GPU1 adds its step half an update later. */
  const timeOf = (version, updates) => Math.min(version, updates + 0.5);

  const timeline = (done, { updates }) => {
    const x = time => BEGIN + time * (WIDTH - 4 - BEGIN) / (updates + 1);
    const writes = writesOf(done);
    const bar = ({ gpu, version }) => {
      const begin = x(version);
      const end = x(gpu === "GPU1" ? updates + 0.5 : version + 1);
      const isDone = writes.some(write => write.gpu === gpu && write.read === version);
      return [
        rect(isDone ? `${kindOf(gpu)} bar` : "faint", [begin, ROWS[gpu] - 16], end - begin, 22),
        text("", [(begin + end) / 2, ROWS[gpu]], LETTERS[version]),
      ];
    };
    const tick = ({ gpu, version, staleness }) => {
      const when = x(timeOf(version, updates));
      return [
        line("update", [when, ROWS.θ - 12], [when, ROWS[gpu] + 8]), text("", [when, ROWS.staleness], staleness),
      ];
    };
    const label = (_, version) => {
      const end = version > updates ? updates + 1 : timeOf(version + 1, updates);
      const middle = (x(timeOf(version, updates)) + x(end)) / 2;
      return text(version === writes.length ? "strong" : "", [middle, ROWS.θ], LETTERS[version]);
    };
    return [
      ...Object.entries(ROWS).map(([name, y]) => text("left", [4, y], name)),
      ...readsOf(done).flatMap(bar), ...writes.flatMap(tick),
      ...Array.from({ length: writes.length + 1 }, label),
    ];
  };

  const drawing = (story, done, values) => svg("svg", {
    class: "stories", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": "Above, the plane of θ with its path from version to version and the steps of both GPUs. Below, a "
      + "timeline: the versions, for which of them each GPU computes a step, and the staleness of each update.",
  }, ...plane(story, done, values), ...timeline(done, values));

  const number = value => String(Number(value.toFixed(4)));
  const digits = value => String(Number(value.toPrecision(3)));

  /** What becomes of the loss on GPU1's data with its stale step, and with a fresh one. */
  const outcome = (before, after, fresh) => {
    const [old, stale, ideal] = [before, after, fresh].map(theta => lossOf("GPU1", theta));
    const change = `${stale < old ? "falls" : "rises"} from ${digits(old)} to ${digits(stale)}`;
    return `GPU1's loss ${change}; a fresh step would give ${digits(ideal)}.`;
  };

  const summary = ({ versions, events, fresh, synchronous }, { updates, event }) => {
    const name = version => `θ_${LETTERS[version]}`;
    const value = version => `(${versions[version].map(number).join(", ")})`;
    if (event === 0) return `At the beginning, θ is θ_a = ${value(0)}.`;
    const { does, gpu, version, read, staleness } = events[event - 1];
    if (does === "reads") {
      const meanwhile = gpu === "GPU1" ? ` Meanwhile GPU2 will make ${count(updates, "update")}.` : "";
      return `${gpu} reads ${name(version)} = ${value(version)} and begins to compute its step.${meanwhile}`;
    }
    const before = version - 1;
    const sum = `${name(version)} = ${name(before)} + ΔP${gpu.at(-1)}(${name(read)}) = ${value(version)}`;
    const added = `${gpu} adds its step: ${sum}. Staleness ${staleness}`;
    if (gpu === "GPU2") return `${added}: ${name(read)} was still the newest version.`;
    const isSynchronous = versions[version].every((each, at) => each === synchronous[at]);
    const ending = isSynchronous ? " This is the synchronous result." : "";
    return `${added}. ${outcome(versions[before], versions[version], fresh)}${ending}`;
  };

  pictures.enhance("stories", controls, values => {
    const story = pictures.story(values);
    const done = story.events.slice(0, values.event);
    return { summary: summary(story, values), elements: [drawing(story, done, values)] };
  });
}
