"use strict";

/* The ring all-reduce, iteration by iteration: a row for each GPU, a column for each chunk, and an arrow to the next row for
   each chunk that is sent. */
{
  const { html, slider, stepper, example } = pictures;
  const LETTERS = "abcdefgh";
  const lastIteration = n => 2 * (n - 1);

  const controls = () => ({
    n: slider("GPUs N", 2, LETTERS.length, 5),
    iteration: stepper("iteration", ({ n }) => lastIteration(n)),
  });

  const cell = (state, n, rank, chunk) => {
    const sum = state.contents[rank][chunk];
    const isOf = { whole: sum.length === n, sent: state.sent[rank] === chunk, received: state.received[rank] === chunk };
    const kinds = Object.keys(isOf).filter(kind => isOf[kind]);
    return html("td", { class: kinds.join(" "), style: `--share: ${100 * sum.length / n}%` }, sum.join(" "));
  };

  const table = (state, n) => {
    const chunks = [...LETTERS.slice(0, n)];
    const head = html("tr", {}, html("td"), ...chunks.map(letter => html("th", { scope: "col" }, letter)));
    const rows = state.contents.map((own, rank) => html("tr", {}, html("th", { scope: "row" }, `GPU ${rank}`),
      ...own.map((_, chunk) => cell(state, n, rank, chunk))));
    return html("table", { class: "ring", style: `--n: ${n}` }, html("thead", {}, head), html("tbody", {}, ...rows));
  };

  const summary = ({ n, iteration }, { half, sent }) => {
    if (iteration === 0) return `At the beginning, each GPU holds its own gradient, cut into ${n} chunks.`;
    const chunk = rank => `chunk ${sent[rank]} (${LETTERS[sent[rank]]})`;
    const others = n === 2 ? ` and GPU 1 ${chunk(1)} to GPU 0` : `, GPU 1 ${chunk(1)} to GPU 2, and so on`;
    const meaning = half === "scatter-reduce" ? "Each adds what it receives." : "What is received replaces what was there.";
    const outcome = iteration === n - 1 ? " Each GPU now holds one complete chunk."
      : iteration === lastIteration(n) ? " All chunks are now complete." : "";
    const where = `Iteration ${iteration} of ${lastIteration(n)}, ${half}`;
    return `${where}: GPU 0 sends ${chunk(0)} to GPU 1${others}. ${meaning}${outcome}`;
  };

  const legend = () => html("p", { class: "legend" },
    "The numbers in a cell are the GPUs whose parts have been added up, in this order. ",
    example("sent"), " sent, ", example("received"), " just received, ", example("whole"), " complete. ",
    "The arrow that leaves the last row enters the first.");

  pictures.enhance("ring", controls, values => {
    const state = pictures.ringAllReduce(values.n)[values.iteration];
    return { summary: summary(values, state), elements: [table(state, values.n), legend()] };
  });
}
