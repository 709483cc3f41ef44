"use strict";

/* What an update costs by each method, with sliders: a chart over the number of ranks, and a table for one number. */
{
  const { svg, costs, choice, line, text, rowsTable, roundNumbers, count, time, decimalSize } = pictures;
  const METHODS = Object.keys(costs);

  /** Powers of two, the numbers halfway between them, and 10,000. */
  const RANKS = [2, ...Array.from({ length: 12 }, (_, power) => [3 * 2 ** power, 4 * 2 ** power]).flat(), 10000];

  const controls = () => ({
    ranks: choice("ranks N", RANKS, 64, count),
    bytes: choice("model K", roundNumbers(1e3, 1e10), 1e8, decimalSize),
    microseconds: choice("latency α", roundNumbers(1, 1000), 20, value => time(value * 1e-6)),
    megabytes: choice("bandwidth 1/β", roundNumbers(100, 1e6), 1e4, value => `${decimalSize(value * 1e6)}/s`),
  });

  const WIDTH = 400;
  const HEIGHT = 260;
  const EDGE = { left: 62, right: 390, top: 10, bottom: 214 };

  /** Where a value lies on a logarithmic axis from `least` to `most`, drawn from `begin` to `end`. */
  const logarithmic = (least, most, begin, end) => value =>
    begin + (end - begin) * Math.log(value / least) / Math.log(most / least);

  const powersOfTen = (least, most) => {
    const exponents = Array.from({ length: 40 }, (_, at) => at - 20);
    return exponents.map(exponent => Number(`1e${exponent}`)).filter(power => power >= least && power <= most);
  };

  // Beside the chart there is no room for more digits.
  const tickWords = tick => tick < 1e4 ? time(tick) : `10${"⁰¹²³⁴⁵⁶⁷⁸⁹"[Math.round(Math.log10(tick))]} s`;

  const timeAxis = (y, ticks) => ticks.flatMap(tick => [
    line("grid", [EDGE.left, y(tick)], [EDGE.right, y(tick)]),
    text("end", [EDGE.left - 6, y(tick) + 5], tickWords(tick)),
  ]);

  const rankAxis = x => [
    ...[2, 10, 100, 1000].map(tick => text("", [x(tick), EDGE.bottom + 19], count(tick))),
    text("end", [WIDTH, EDGE.bottom + 19], count(RANKS.at(-1))),
    text("", [(EDGE.left + EDGE.right) / 2, HEIGHT - 6], "ranks"),
  ];

  /** A method's line, and the marker of the chosen number of ranks if it has a time there. */
  const curve = (x, y, points, chosen, at) => [
    svg("polyline", { class: `curve m${at}`, points: points.map(([n, seconds]) => `${x(n)},${y(seconds)}`).join(" ") }),
    ...points.filter(([n]) => n === chosen)
      .map(([n, seconds]) => svg("circle", { class: `dot m${at}`, cx: x(n), cy: y(seconds), r: 4 })),
  ];

  const chart = ({ link, ranks, bytes }) => {
    const curves = METHODS.map(method => RANKS.map(ranks => [ranks, costs[method](link, ranks, bytes)])
      .filter(([, seconds]) => seconds !== null));
    const times = curves.flat().map(([, seconds]) => seconds);
    const [least, most] = [Math.min(...times), Math.max(...times)];
    const x = logarithmic(RANKS[0], RANKS.at(-1), EDGE.left, EDGE.right);
    const y = logarithmic(least, most, EDGE.bottom, EDGE.top);
    // With many decades, labels on each would touch.
    const ticks = powersOfTen(least, most).filter((_, at, all) => at % Math.ceil(all.length / 6) === 0);
    const label = "time of an update over the number of ranks, both logarithmic; the table has the numbers";
    const area = { x: EDGE.left, y: EDGE.top, width: EDGE.right - EDGE.left, height: EDGE.bottom - EDGE.top };
    return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
      svg("rect", { class: "lane", ...area }),
      ...timeAxis(y, ticks),
      ...rankAxis(x),
      line("faint", [x(ranks), EDGE.top], [x(ranks), EDGE.bottom]),
      ...curves.flatMap((points, at) => curve(x, y, points, ranks, at)));
  };

  const key = at => svg("svg", { class: "key", viewBox: "0 0 36 10", "aria-hidden": "true" },
    svg("line", { class: `curve m${at}`, x1: 0, y1: 5, x2: 36, y2: 5 }));

  /** The methods that take the least time, but for rounding. */
  const fastestOf = seconds => {
    const least = Math.min(...seconds.filter(each => each !== null));
    return METHODS.filter((_, at) => seconds[at] !== null && seconds[at] <= least * (1 + 1e-9));
  };

  const table = (seconds, fastest) => rowsTable(METHODS.map((method, at) => {
    const isFastest = fastest.includes(method);
    const words = seconds[at] === null ? "needs full nodes" : time(seconds[at]) + (isFastest ? ", fastest" : "");
    return { name: [key(at), method], words, kind: isFastest ? "fastest" : "" };
  }));

  const summary = ({ link, ranks, bytes }, fastest) => {
    const overtakes = pictures.treeOvertakesRing(link, bytes);
    const beyond = overtakes === null ? "Up to 10,000 ranks the tree does not overtake the ring."
      : `The tree first overtakes the ring at ${count(overtakes)} ranks.`;
    return `With ${count(ranks)} ranks the fastest is: ${fastest.join(", ")}. ${beyond}`;
  };

  pictures.enhance("cost", controls, ({ ranks, bytes, microseconds, megabytes }) => {
    const values = { ranks, bytes, link: { latency: microseconds * 1e-6, perByte: 1e-6 / megabytes } };
    const seconds = METHODS.map(method => costs[method](values.link, ranks, bytes));
    const fastest = fastestOf(seconds);
    return { summary: summary(values, fastest), elements: [chart(values), table(seconds, fastest)] };
  });
}
