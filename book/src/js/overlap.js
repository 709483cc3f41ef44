"use strict";

/* How much of the exchange a backward pass hides: when each bucket is complete, leaves and has arrived. */
{
  const { sum } = pictures;

  /** The buckets of equal layers with one gradient each, with times in seconds: a bucket is computed from `begin` to
      `complete`, and exchanged from `start` to `end`. */
  pictures.overlap = ({ layers, bytes, seconds, capMb, ranks, link }) => {
    let [ready, free] = [0, 0];
    const buckets = pictures.buckets(Array(layers).fill(bytes), capMb).map(gradients => {
      const begin = ready * seconds;
      ready += gradients.length;
      const complete = ready * seconds;
      const start = Math.max(complete, free);
      free = start + pictures.costs.ring(link, ranks, sum(gradients));
      return { bytes: sum(gradients), begin, complete, start, end: free };
    });
    const backward = layers * seconds;
    const exchange = sum(buckets.map(({ start, end }) => end - start));
    const hidden = sum(buckets.map(({ start, end }) => Math.max(0, Math.min(end, backward) - start)));
    return { buckets, backward, exchange, hidden, end: free };
  };
}
