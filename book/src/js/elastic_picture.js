"use strict";

/* A rank is killed and replaced: a timeline of the processes, a column for each moment. What is yet to come is outlined. */
{
  const { svg, html, slider, stepper, example, line, text } = pictures;
  const NAMES = pictures.elasticProcesses;
  const NEWCOMER = NAMES.length - 1;
  // After the kill, as `cargo xtask soak replaced` measures it.
  const TIMES = { nextStep: "0.10 s", newRank: "0.5 s" };

  const controls = () => ({
    killed: slider("killed rank", 0, NEWCOMER - 1, 1),
    moment: stepper("moment", () => WIDTHS.length - 1),
  });

  const WIDTH = 400;
  const BEGIN = 76;
  // Of the columns.
  const WIDTHS = [38, 38, 26, 34, 36, 36, 42, 36, 38];
  const EDGES = [...WIDTHS, 0].map((_, at) => BEGIN + pictures.sum(WIDTHS.slice(0, at)));
  const [KILLED, NOTICED, READY, TOLD] = [EDGES[1] + 20, EDGES[2] + 12, EDGES[6] + 6, EDGES[6] + 36];
  const LANE = 28;
  const LAUNCH = 40;
  const top = process => 62 + process * (LANE + 9);
  const middle = process => top(process) + LANE / 2;
  const TIME = top(NAMES.length) + 8;
  const HEIGHT = TIME + 26;

  const rect = (kind, x, end, process, last = process) =>
    svg("rect", { class: kind, x, y: top(process), width: end - x, height: top(last) + LANE - top(process) });
  const words = (kind, process, x, what) => text(kind, [x, middle(process) + 5], what);
  const says = x => svg("circle", { class: "head", cx: x, cy: LAUNCH, r: 5 });

  const arrow = (x, y, end) => {
    const back = end > y ? end - 8 : end + 8;
    return [line("line", [x, y], [x, end]), svg("polygon", { class: "head", points: `${x},${end} ${x - 4},${back} ${x + 4},${back}` })];
  };

  const cross = (x, y) => [-7, 7].map(side => line("lost solid", [x - 7, y - side], [x + 7, y + side]));

  /** How long something took since the kill. */
  const duration = (y, x, what) => [
    line("line", [KILLED, y], [x, y]), ...[KILLED, x].map(end => line("line", [end, y - 4], [end, y + 4])),
    text("end", [KILLED - 6, y + 5], what),
  ];

  /** What a column shows. */
  const column = ({ kind, group, step, samples, committed, source, receivers }, at, now, killed) => {
    const [x, end] = [EDGES[at], EDGES[at + 1]];
    const others = group.filter(process => process !== killed);
    const computed = () => [
      text("strong", [(x + end) / 2, 16], step),
      ...group.flatMap(process => [rect("a", x + 1, end - 1, process), words("", process, (x + end) / 2, samples)]),
    ];
    switch (kind) {
      case "kill": return [
        text("strong", [(x + end) / 2, 16], step),
        rect("undone", x + 1, KILLED, killed),
        ...others.flatMap(process => [
          now > at ? rect("undone", x + 1, NOTICED, process) : rect("a", x + 1, end - 1, process),
          words(now > at ? "struck" : "", process, (x + end) / 2, samples),
        ]),
        ...cross(KILLED, middle(killed)),
      ];
      case "notice": return [
        line("faint", [KILLED, middle(killed)], [KILLED, LAUNCH]), line("faint", [KILLED, LAUNCH], [NOTICED, LAUNCH]),
        says(NOTICED), ...[...others, NEWCOMER].flatMap(process => arrow(NOTICED, LAUNCH, top(process))),
        rect("b part", NOTICED, Math.min(EDGES[Math.max(at, now) + 1], READY), NEWCOMER), words("left", NEWCOMER, NOTICED + 5, "sets itself up"),
      ];
      case "meet": return [
        rect("c", x + 4, end - 4, Math.min(...group), Math.max(...group)),
        ...group.map(process => words("", process, receivers.length > 0 ? x + 14 : (x + end) / 2, committed[process] ?? "–")),
        ...receivers.flatMap(process => arrow(end - 10, middle(source), top(process) + 4)),
      ];
      case "ready": return [
        ...computed(), ...arrow(READY, top(NEWCOMER), LAUNCH + 5),
        says(READY), line("faint", [READY, LAUNCH], [TOLD, LAUNCH]), ...group.flatMap(process => arrow(TOLD, LAUNCH, top(process))),
      ];
      default: return [
        ...computed(),
        ...(at === 4 ? duration(TIME, end, `${TIMES.nextStep} at most`) : []),
        ...(at === 8 ? duration(TIME + 17, x, TIMES.newRank) : []),
      ];
    }
  };

  /** What each process is at this moment. */
  const roles = (moments, now, killed) => NAMES.map((name, process) => {
    const rank = moments[now].group.indexOf(process);
    const isLost = process === killed && now > 0;
    const role = isLost ? "killed" : rank >= 0 ? `rank ${rank}` : process !== NEWCOMER || now < 2 ? "" : now < 6 ? "starts" : "ready";
    return [words("left strong", process, 4, name), words("left", process, 21, role)];
  }).flat();

  const drawing = (moments, now, killed) => svg("svg", {
    class: "elastic", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": "A timeline of three ranks, of which one is killed in step 2. launch tells the others and starts process D. The others meet "
      + "and do steps 2 to 4 with 30 samples each. Then D meets them and gets the state, and all three do step 5 with 20 samples each.",
  },
  text("left", [4, 16], "step"), text("left", [4, LAUNCH + 5], "launch"),
  ...NAMES.map((_, process) => rect("lane", BEGIN, WIDTH, process)),
  ...moments.map((frame, at) => svg("g", { class: at > now ? "future" : "past" }, ...column(frame, at, now, killed))),
  ...roles(moments, now, killed));

  const legend = () => html("p", { class: "legend" }, example("a"), " a rank's samples of a step, ", example("undone"), " undone, ",
    example("c"), " a new group, and how many steps each has committed. Not to scale.");

  const list = words => `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

  const summary = (moments, now, killed) => {
    const { group, committed, samples, source } = moments[now];
    const names = list(group.map(process => NAMES[process]));
    const ranks = `${list([...group.keys()])} of ${group.length}`;
    return [
      `Three ranks train. Each computes ${samples} of a step's 60 samples.`,
      `Process ${NAMES[killed]}, which is rank ${killed}, is killed during step 2. The others wait for its gradients.`,
      `launch sees that ${NAMES[killed]} has ended. It tells the others, whose exchange fails, and starts process D.`,
      `${names} undo their part of step 2 and meet, as ranks ${ranks}. Both have committed 1 step, so they have the same state.`,
      `They do step 2 again, with all its 60 samples: ${samples} each. In 200 kills, they had done it ${TIMES.nextStep} after the kill at most.`,
      "They go on. Meanwhile D sets itself up: it loads libtorch and its data, and makes its model.",
      "D is ready, and launch tells the others. After step 4, commit returns an error on both.",
      `All meet, as ranks ${ranks}. D has committed no step: it gets weights, optimizer and progress from ${NAMES[source]}.`,
      `All train, ${TIMES.newRank} after the kill. No sample was lost, and none was used twice.`,
    ][now];
  };

  pictures.enhance("elastic", controls, ({ killed, moment }) => {
    const moments = pictures.elastic(killed);
    return { summary: summary(moments, moment, killed), elements: [drawing(moments, moment, killed), legend()] };
  });
}
