"use strict";

/* The memory of the article's BERT: a bar for each device, with the bytes of its parts. */
{
  const { html, choice, slider, options, example, count, sum, binarySize, bertMethods } = pictures;
  const WORDS = [250, 500, 1000, 2000, 4000, 8000, 16000, 22000, 30522, 50000];
  const PAIRS = [1, 2, 5, 10, 20, 50, 100, 200];
  const ARTICLES = { hidden: 256, layers: 8, tokens: 163 };
  // The gradients of the weights do not exist yet at the peak, and the outputs no longer do between two steps.
  const MOMENTS = {
    "at the peak": ["weights", "state", "buckets", "outputs"],
    "between steps": ["weights", "gradients", "state", "buckets"],
  };
  const NAMES = { state: "Adam's state" };

  const nameOf = (method, device) => `${method.startsWith("ddp") ? "rank" : "device"} ${device}`;

  const controls = () => ({
    devices: slider("devices k", 1, 8, 4),
    words: choice("words V", WORDS, 22000, count),
    pairs: choice("pairs / device", PAIRS, 50),
    method: options("method", bertMethods, "data-parallel"),
    moment: options("moment", Object.keys(MOMENTS), "at the peak"),
  });

  const total = (device, moment) => sum(MOMENTS[moment].map(part => device[part]));

  const amount = (device, part) => html("span", {}, example(part),
    ` ${NAMES[part] ?? part} ${binarySize(device[part])}${part === "outputs" ? `, ${device.shares} shares` : ""}`);

  const row = (name, device, { moment }, { widest, isKnown }) => {
    const parts = MOMENTS[moment].filter(part => device[part] > 0);
    const segments = parts.map(part => html("span", { class: part, style: `width: ${100 * device[part] / widest}%` }));
    const bytes = isKnown ? binarySize(total(device, moment)) : "?";
    return html("div", { class: "device" },
      html("p", {}, html("span", {}, name), html("span", { class: "total" }, bytes)),
      html("div", { class: "bar", "aria-hidden": "true" }, ...segments),
      html("p", { class: "amounts" }, ...parts.map(part => amount(device, part))));
  };

  const ofRanks = totals => {
    const [most, least] = [Math.max(...totals), Math.min(...totals)];
    if (most === least) return "All ranks need the same, to the byte.";
    const [full, empty] = [totals.indexOf(most), totals.indexOf(least)];
    const more = `Rank ${full} needs ${binarySize(most - least)} more than rank ${empty}`;
    return `${more}: tensors are not cut, so shares of Adam's state differ.`;
  };

  const atThePeak = (method, { share, devices }) => {
    const [first] = devices;
    const shares = 3 * devices.length - 3;
    const more = shares * share;
    const state = binarySize(first.state);
    switch (method) {
      case "data-parallel":
        return `The first device needs ${binarySize(more + first.state)} more than any other: `
          + `${shares} shares of the output, ${binarySize(share)} each, and Adam's state.`;
      case "output-device":
        return `The second device has ${shares} shares of the output more than any other, `
          + `${binarySize(share)} each, ${binarySize(more)} in all. Adam's state, ${state}, stays on the first.`;
      default:
        return `The first device needs ${state} more than any other: Adam's state.`;
    }
  };

  const summary = ({ method, moment }, memory, totals, isKnown) => {
    const { devices, share } = memory;
    if (!isKnown) {
      return `A share of the output takes ${binarySize(share)}, and the weights' gradients take two shares or more. `
        + "The formula does not hold here: the peak may be at another moment.";
    }
    if (devices.length === 1) return "With one device, nothing is gathered.";
    if (method.startsWith("ddp")) return ofRanks(totals);
    if (moment === "at the peak") return atThePeak(method, memory);
    const more = devices[0].gradients + devices[0].state;
    return `The first device has ${binarySize(more)} more than any other: the gradients and Adam's state.`;
  };

  const note = ({ devices, pairs }) => html("p", { class: "legend" },
    `${count(devices * pairs)} pairs in all. Other activations and the batch itself are left out.`);

  pictures.enhance("bert-memory", controls, values => {
    const memory = pictures.bertMemory({ ...ARTICLES, ...values });
    const totals = memory.devices.map(device => total(device, values.moment));
    const isKnown = memory.holds || values.moment !== "at the peak";
    const scale = { widest: Math.max(...totals), isKnown };
    const rows = memory.devices.map((device, at) => row(nameOf(values.method, at), device, values, scale));
    return { summary: summary(values, memory, totals, isKnown), elements: [...rows, note(values)] };
  });
}
