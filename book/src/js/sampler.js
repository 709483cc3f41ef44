"use strict";

/* Which rank sees which samples: the rule of DistributedSampler. */
{
  /** The order of all samples, how many samples a rank takes, and each rank's samples. */
  pictures.distributedSampler = ({ len, ranks, shuffle, dropLast, seed, epoch }) => {
    const order = shuffle ? pictures.randperm(len, seed + epoch) : Array.from({ length: len }, (_, index) => index);
    const perRank = dropLast ? Math.floor(len / ranks) : Math.ceil(len / ranks);
    const positions = rank => Array.from({ length: perRank }, (_, step) => rank + step * ranks);
    const shards = Array.from({ length: ranks }, (_, rank) => positions(rank).map(position => order[position % len]));
    return { order, perRank, shards };
  };
}
