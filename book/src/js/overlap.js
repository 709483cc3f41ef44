"use strict";

/* How much of the exchange a backward pass hides: the buckets of libtorch's Reducer from step 2 on, and when each is
   complete, leaves and has arrived. */
{
  const { MIB, sum } = pictures;

  /** The bytes at which the first bucket and all others are closed, as in core/src/distributed/gradients/ddp_options.rs. */
  const limitsOf = capMb => capMb === null ? [MIB, 25 * MIB] : Array(2).fill(Math.floor(capMb * MIB));

  /** The gradients in each bucket, in bytes and in the order in which they are ready. The gradient that reaches the
      limit closes the bucket. A cap of null is PyTorch's default. */
  pictures.buckets = (gradients, capMb) => {
    const [first, others] = limitsOf(capMb);
    const buckets = [];
    let open = [];
    for (const bytes of gradients) {
      open.push(bytes);
      if (sum(open) < (buckets.length === 0 ? first : others)) continue;
      buckets.push(open);
      open = [];
    }
    return open.length > 0 ? [...buckets, open] : buckets;
  };

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
