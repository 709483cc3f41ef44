"use strict";

/* A step of DataParallel in nine frames: a column for each device, and a row for each kind of thing that it holds. */
{
  const { html, slider, stepper, example, count, sum } = pictures;
  const STEPS = pictures.dataParallelSteps;
  const COLOURS = ["a", "b", "c", "d"];
  const NAMES = { batch: "batch", weights: "weights", outputs: "outputs", outputGradients: "gradients of outputs",
    gradients: "gradients of weights" };

  const controls = () => ({
    devices: slider("devices", 1, COLOURS.length, 3),
    rows: slider("rows", 1, 12, 6),
    step: stepper("step", () => STEPS.length),
  });

  const list = words => words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

  const names = devices => list(devices.map(device => `cpu:${device}`));

  const bytes = frames => sum(frames.flatMap(frame => frame.copies).map(copy => copy.bytes));

  /** The device whose colour a row of the batch, or the gradient of a replica, has. */
  const ownerOf = (kind, item, chunks) => kind === "gradients" ? item : chunks.findIndex(chunk => chunk.includes(item));

  /** What a device holds of a kind. What it holds only in other steps keeps its place, so that nothing jumps. */
  const cells = ({ chunks, frames }, step, device, kind) => {
    const holds = at => frames[at].held[device][kind];
    const sent = frames[step].copies.filter(copy => copy.from === device && copy.of === kind).flatMap(copy => copy.items);
    const kinds = item => Object.entries({
      absent: !holds(step).includes(item),
      sent: sent.includes(item),
      new: step > 0 && holds(step).includes(item) && !holds(step - 1).includes(item) && item !== "old copy",
    }).filter(([, applies]) => applies).map(([name]) => name);
    const cell = (item, colour) => html("span", { class: ["cell", colour, ...kinds(item)].join(" ") }, String(item));
    if (kind === "weights") return holds(step).map(word => cell(word, "word"));
    const ever = new Set(frames.flatMap((_, at) => holds(at)));
    return [...ever].sort((one, other) => one - other).map(item => cell(item, COLOURS[ownerOf(kind, item, chunks)]));
  };

  const table = (computed, step) => {
    const devices = computed.chunks.map((_, device) => html("th", { scope: "col" }, `cpu:${device}`));
    const row = ([kind, name]) => html("tr", {}, html("th", { scope: "row" }, name), ...computed.chunks.map((_, device) =>
      html("td", {}, html("div", { class: "cells" }, ...cells(computed, step, device, kind)))));
    return html("table", { class: "step" }, html("thead", {}, html("tr", {}, html("td"), ...devices)),
      html("tbody", {}, ...Object.entries(NAMES).map(row)));
  };

  const copies = ({ chunks, frames }, step) => html("ul", { class: "copies", style: `--n: ${chunks.length - 1}` },
    ...frames[step].copies.map(({ from, to, bytes }) => html("li", {}, `cpu:${from} → cpu:${to}: ${count(bytes, "byte")}`)));

  const copied = ({ frames }, step) => html("p", { class: "sum" },
    html("span", {}, `Copied in this step: ${count(bytes([frames[step]]), "byte")}. `),
    html("span", {}, `So far: ${count(bytes(frames.slice(0, step + 1)))} of ${count(bytes(frames), "byte")}.`));

  const legend = () => html("p", { class: "legend" },
    "Numbers are rows of the batch; in the last line, replicas whose gradients are added up. ",
    example("sent"), " sent, ", example("new"), " new in this step.");

  const summary = ({ rows, step }, { chunks, frames }) => {
    const atWork = chunks.flatMap((chunk, device) => chunk.length > 0 ? [device] : []);
    const idle = chunks.flatMap((chunk, device) => chunk.length > 0 ? [] : [device]);
    const sizes = atWork.map(device => chunks[device].length);
    const without = idle.length > 0 ? ` No chunk is left for ${names(idle)}.` : "";
    const [others, isAlone] = [names(atWork.slice(1)), atWork.length === 1];
    const pass = words => isAlone ? `cpu:0 runs the ${words}.` : `${names(atWork)} run the ${words}, side by side.`;
    const words = [
      `cpu:0 holds the batch of ${count(rows, "row")} and the original model.`,
      `${isAlone ? "The batch is one chunk, for cpu:0." : `The batch is cut into chunks of ${list(sizes)} rows.`}${without}`,
      isAlone ? "No other device is at work, so there is no replica to update." : `The weights are copied to ${others}.`,
      pass(isAlone ? "forward pass for its chunk" : "forward pass for their chunks"),
      isAlone ? "All outputs are on cpu:0 already." : "The outputs are joined on cpu:0, in the order of the rows.",
      "On cpu:0, the loss of all outputs is computed, then its gradient with respect to them.",
      isAlone ? "There is one replica, and its rows are here." : "Each replica gets the rows that belong to its outputs.",
      pass(isAlone ? "backward pass from its rows" : "backward pass, each from its rows"),
      isAlone ? "There is nothing to add." : `The gradients of ${others} are added to those of cpu:0.`,
      `The optimizer updates the original on cpu:0.${chunks.length === 1 ? "" : " The replicas are now out of date."}`,
    ];
    return step === 0 ? `Before the step, ${words[0]}` : `${step}. ${STEPS[step - 1]}: ${words[step]}`;
  };

  pictures.enhance("data-parallel", controls, values => {
    const computed = pictures.dataParallel(values);
    const { step } = values;
    const elements = [table(computed, step), copies(computed, step), copied(computed, step), legend()];
    return { summary: summary(values, computed), elements };
  });
}
