"use strict";

/* A step of a sharded model on two ranks, collective by collective: which units are whole, and the memory of a rank. */
{
  const { html, slider, stepper, example, memoryBar, sum, binarySize, MIB } = pictures;
  const RANKS = 2;
  const SIZES = { root: MIB / 2, block: 2 * MIB };
  const NAMES = { weights: "weights", state: "Adam's state", gradients: "gradients", units: "whole weights",
    unreduced: "whole gradients", kept: "kept for the next unit" };

  const controls = () => ({
    blocks: slider("blocks", 2, 4, 3),
    moment: stepper("moment", ({ blocks }) => stepOf(blocks).length - 1),
  });

  const stepOf = blocks => pictures.shardedStep({ blocks, ranks: RANKS, ...SIZES });

  /** What a rank holds of a unit. Its half is on its own side of the cell. */
  const cell = (rank, isWhole, isHalf, isNow) => {
    const kind = isWhole ? "whole" : isHalf ? `half${rank}` : "";
    return html("td", { class: `${kind}${isNow ? " now" : ""}` }, isWhole ? "whole" : isHalf ? "half" : "–");
  };

  const table = (frame, blocks) => {
    const units = ["root", ...Array(blocks).keys()];
    const row = (rank, name, ofUnit) => html("tr", {}, html("th", { scope: "row" }, `rank ${rank} ${name}`), ...units.map(ofUnit));
    const rows = Array.from({ length: RANKS }, (_, rank) => [
      row(rank, "weights", unit => cell(rank, frame.whole.includes(unit), true, frame.kind === "AG" && frame.unit === unit)),
      row(rank, "gradients", unit => cell(rank, frame.gradient === unit, frame.reduced.includes(unit), frame.gradient === unit)),
    ]).flat();
    const head = units.map(unit => html("th", { scope: "col" }, unit === "root" ? unit : String(unit)));
    return html("table", { class: "shards" }, html("thead", {}, html("tr", {}, html("td"), ...head)), html("tbody", {}, ...rows));
  };

  const legend = () => html("p", { class: "legend" }, "Half: the rank's shard. ", example("now"), " exchanged now.");

  const remark = ({ pass, kind, unit }, blocks) => {
    if (kind === "RS") return "Its weights are freed, and each rank keeps half of the mean gradients.";
    if (pass === "backward") {
      return unit === blocks - 1 ? "The last step's gradients have been freed." : `Meanwhile block ${unit + 1} computes its gradients.`;
    }
    if (unit === "root") return "It stays whole until the end of the step.";
    return unit === 0 ? "It is freed after its forward pass." : `Block ${unit - 1} has been freed.`;
  };

  const summary = (frame, blocks) => {
    const { pass, kind, unit } = frame;
    if (kind === "begin") return "Between two steps, each rank holds half of every parameter, of its gradient and of Adam's state.";
    if (kind === "end") return "The optimizer updates each rank's half. Nothing is exchanged.";
    const when = pass === "forward" ? "Forward pass" : "Backward pass";
    const what = kind === "AG" ? "all-gather" : "reduce-scatter";
    const [name, size] = unit === "root" ? ["the root", SIZES.root] : [`block ${unit}`, SIZES.block];
    return `${when}: ${what} of ${name}. Each rank sends ${binarySize(size / RANKS)}. ${remark(frame, blocks)}`;
  };

  pictures.enhance("sharded-step", controls, ({ blocks, moment }) => {
    const frames = stepOf(blocks);
    const frame = frames[moment];
    const most = Math.max(...frames.map(({ bytes }) => sum(Object.values(bytes))));
    const bar = memoryBar("each rank", frame.bytes, most, part => `${NAMES[part]} ${binarySize(frame.bytes[part])}`, binarySize);
    return { summary: summary(frame, blocks), elements: [table(frame, blocks), bar, legend()] };
  });
}
