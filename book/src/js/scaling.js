"use strict";

/* The time of a step on hosts with 8 accelerators, as in scaling/src: computing, waiting for the latest rank, and what of
   the exchange the backward pass does not hide. */
{
  const { sum } = pictures;
  const RANKS_PER_HOST = 8;
  const INSIDE = { latency: 5e-6, bandwidth: 350e9 };
  const LATENCY = 10e-6;
  const DELAY = 0.02;

  /** The networks: Gflop of a sample; and layers, last first, with millions of parameters, the part of the backward pass
      that they take, and the number of tensors. */
  pictures.networks = {
    "ResNet-50": { operations: 24.6, layers: [[2.05, 0.001, 1], [14.96, 0.198, 32], [7.10, 0.359, 55], [1.22, 0.254, 39], [0.23, 0.188, 33]] },
    "ResNet-101": { operations: 47, layers: [[2.05, 0.001, 1], [14.96, 0.104, 32], [26.10, 0.660, 210], [1.22, 0.133, 39], [0.23, 0.102, 33]] },
    "Inception V3": { operations: 34.2, layers: [[2.05, 0.001, 1], [11.10, 0.150, 60], [8.90, 0.420, 120], [1.70, 0.429, 40]] },
    "VGG-16": { operations: 92.8, layers: [[4.10, 0.001, 1], [16.78, 0.001, 1], [102.76, 0.006, 1], [7.08, 0.090, 6], [5.90, 0.240, 6], [1.74, 0.662, 14]] },
    "BERT-base": { operations: 66, layers: [[85.5, 0.98, 192], [24, 0.02, 3]] },
    "GPT 1.3B": { operations: 7.89, layers: [[1208, 0.95, 290], [107, 0.05, 2]] },
  };

  const allReduce = (bandwidth, ranks, bytes) => {
    const hosts = Math.ceil(ranks / RANKS_PER_HOST);
    const sent = 2 * (ranks - 1) / ranks * bytes;
    if (hosts === 1) return 2 * (ranks - 1) * INSIDE.latency + sent / INSIDE.bandwidth;
    const levels = 2 * (RANKS_PER_HOST - 1) * INSIDE.latency + 2 * Math.ceil(Math.log2(hosts)) * LATENCY;
    return levels + sent / Math.min(INSIDE.bandwidth, bandwidth);
  };

  /** A step in seconds. `gigabits` per second are a host's, `bytes` a parameter's gradient's. */
  pictures.trainingStep = ({ network, samples, tflops, gigabits, bytes, ranks }) => {
    const { operations, layers } = pictures.networks[network];
    const compute = operations * samples / tflops / 1e3;
    const tensors = layers.flatMap(([millions, share, count]) =>
      Array(count).fill({ bytes: 1e6 * millions * bytes / count, share: share / count }));
    const late = compute * DELAY * (sum(Array.from({ length: ranks }, (_, at) => 1 / (at + 1))) - 1);
    const backward = 2 / 3 * compute;
    let [ready, free, at] = [compute - backward + late, 0, 0];
    for (const bucket of pictures.buckets(tensors.map(tensor => tensor.bytes), null)) {
      ready += backward * sum(tensors.slice(at, at += bucket.length).map(tensor => tensor.share));
      free = Math.max(ready, free) + allReduce(gigabits * 1e9 / 8, ranks, sum(bucket));
    }
    return { compute, late, exposed: Math.max(0, free - compute - late) };
  };
}
