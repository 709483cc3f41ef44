"use strict";

/* Which rank sees which samples, with sliders: a row of cells for the order of all samples, and one for each rank. */
{
  const { html, slider, checkbox, count } = pictures;
  // The classes of book/controls.css for the ranks' colours.
  const COLOURS = ["a", "b", "c", "d", "e", "f"];

  const controls = () => ({
    len: slider("samples", 1, 24, 10),
    ranks: slider("ranks", 1, COLOURS.length, 3),
    seed: slider("seed", 0, 120, 0),
    epoch: slider("epoch", 0, 9, 0),
    shuffle: checkbox("shuffle", true),
    dropLast: checkbox("drop_last", false),
  });

  const cell = (sample, kind) => html("span", { class: `cell ${kind}` }, String(sample));

  /** The order, with its padding. A position has the colour of the rank that takes it, or none if it is left out. */
  const orderCells = ({ len, ranks }, { order, perRank }) => {
    const total = perRank * ranks;
    return Array.from({ length: Math.max(len, total) }, (_, position) => {
      const colour = position < total ? COLOURS[position % ranks] : "dropped";
      return cell(order[position % len], position < len ? colour : `${colour} padding`);
    });
  };

  const rankCells = ({ len, ranks }, shard, rank) =>
    shard.map((sample, step) => cell(sample, COLOURS[rank] + (rank + step * ranks < len ? "" : " padding")));

  const row = (name, cells) => html("p", { class: "cells" }, html("span", { class: "name" }, name), ...cells);

  const summary = ({ len, ranks }, { perRank }) => {
    const extra = perRank * ranks - len;
    const rest = extra > 0 ? ` ${count(extra, "position")} of padding.`
      : extra < 0 ? ` ${count(-extra, "sample")} left out.` : " Nothing is added or left out.";
    return `Each rank takes ${count(perRank, "sample")}.${rest}`;
  };

  pictures.enhance("sampler", controls, values => {
    const sampled = pictures.distributedSampler(values);
    const rows = sampled.shards.map((shard, rank) => row(`rank ${rank}`, rankCells(values, shard, rank)));
    return { summary: summary(values, sampled), elements: [row("order", orderCells(values, sampled)), ...rows] };
  });
}
