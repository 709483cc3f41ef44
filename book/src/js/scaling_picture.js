"use strict";

/* A calculator: the time of a step, where it goes, and the efficiency. */
{
  const { choice, options, rowsTable, roundNumbers, count, sum, time } = pictures;
  const POWERS = Array.from({ length: 15 }, (_, power) => 2 ** power);
  const BANDWIDTHS = [1, 10, 25, 50, 100, 200, 400, 800, 1600, 3200];

  const controls = () => ({
    network: options("network", Object.keys(pictures.networks), "ResNet-50"),
    samples: choice("samples of a rank (GPT: tokens)", POWERS, 256, count),
    tflops: choice("useful Tflop/s of a rank", roundNumbers(1, 1000), 50, count),
    gigabits: choice("Gb/s of a host with 8", BANDWIDTHS, 100, count),
    precision: options("gradients", ["f32", "16 bits"], "f32"),
    ranks: choice("ranks N", POWERS, 64, count),
  });

  pictures.enhance("scaling", controls, ({ precision, ...values }) => {
    const { compute, late, exposed } = pictures.trainingStep({ ...values, bytes: precision === "f32" ? 4 : 2 });
    const total = sum([compute, late, exposed]);
    const percent = seconds => `${(100 * seconds / total).toFixed(1)} %`;
    const row = (name, seconds) => ({ name, words: `${time(seconds)}, ${percent(seconds)}` });
    const summary = `A step of ${count(values.ranks, "rank")} takes ${time(total)}, with an efficiency of ${percent(compute)}:`
      + ` ${count(Number((values.ranks * values.samples / total).toPrecision(3)))} samples per second.`;
    const rows = [row("computing", compute), row("waiting for the latest rank", late), row("exchange not hidden", exposed)];
    return { summary, elements: [rowsTable(rows)] };
  });
}
