"use strict";

/* The buckets of libtorch's Reducer from step 2 on. */
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
}
