"use strict";

/* A calculator: the memory of a rank by three methods, with sliders for the model and the ranks. */
{
  const { choice, options, memoryBar, roundNumbers, count, sum, decimalSize } = pictures;
  const SHARES = [0.5, 1, 2, 5, 10, 20, 50, 100];
  const RANKS = Array.from({ length: 10 }, (_, power) => 2 ** (power + 1));
  const NAMES = { units: "whole weights", unreduced: "whole gradients" };

  const number = parameters => parameters < 1e9 ? `${count(parameters / 1e6)} million` : `${count(parameters / 1e9)} billion`;

  const controls = () => ({
    parameters: choice("parameters", roundNumbers(1e6, 5e11), 1e9, number),
    ranks: choice("ranks N", RANKS, 8, count),
    percent: choice("largest unit", SHARES, 5, share => `${share} %`),
    optimizer: options("optimizer", pictures.shardingOptimizers, "Adam, AdamW"),
    precision: options("precision", pictures.shardingPrecisions, "f32"),
  });

  const bar = (method, memory, most) => memoryBar(method, memory, most,
    part => `${NAMES[part] ?? part} ${decimalSize(memory[part])}`, decimalSize);

  pictures.enhance("sharding-memory", controls, ({ percent, ...model }) => {
    const methods = pictures.shardingMemory({ ...model, unit: percent / 100 });
    const totals = Object.values(methods).map(memory => sum(Object.values(memory)));
    const [ddp, , sharded] = totals;
    const percentage = Number((100 * sharded / ddp).toPrecision(2));
    const summary = `FullyShard takes ${percentage} % of DDP's memory, activations apart.`;
    return { summary, elements: Object.entries(methods).map(([method, memory]) => bar(method, memory, Math.max(...totals))) };
  });
}
