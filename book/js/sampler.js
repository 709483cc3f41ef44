"use strict";

/* Which rank sees which samples: DistributedSampler, with sliders. */
{
  const { html, slider, checkbox } = pictures;
  // The classes of book/pictures.css for the ranks' colours.
  const COLOURS = ["a", "b", "c", "d", "e", "f"];

  /** The order of all samples, how many samples a rank takes, and each rank's samples. */
  pictures.distributedSampler = ({ len, ranks, shuffle, dropLast, seed, epoch }) => {
    const order = shuffle ? pictures.randperm(len, seed + epoch) : Array.from({ length: len }, (_, index) => index);
    const perRank = dropLast ? Math.floor(len / ranks) : Math.ceil(len / ranks);
    const positions = rank => Array.from({ length: perRank }, (_, step) => rank + step * ranks);
    const shards = Array.from({ length: ranks }, (_, rank) => positions(rank).map(position => order[position % len]));
    return { order, perRank, shards };
  };

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

  const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

  const summary = ({ len, ranks }, { perRank }) => {
    const extra = perRank * ranks - len;
    const rest = extra > 0 ? ` ${plural(extra, "position")} of padding.`
      : extra < 0 ? ` ${plural(-extra, "sample")} left out.` : " Nothing is added or left out.";
    return `Each rank takes ${plural(perRank, "sample")}.${rest}`;
  };

  pictures.enhance("sampler", controls, values => {
    const sampled = pictures.distributedSampler(values);
    const rows = sampled.shards.map((shard, rank) => row(`rank ${rank}`, rankCells(values, shard, rank)));
    return { summary: summary(values, sampled), elements: [row("order", orderCells(values, sampled)), ...rows] };
  });
}
