"use strict";

/* What an update costs by each method, as in async-update/src/exhibits/cost/model.rs: a message of n bytes takes
   α + βn seconds, with `latency` for α and `perByte` for β. */
{
  const PER_NODE = 8;
  const MOST = 10000;

  const message = (link, bytes) => link.latency + link.perByte * bytes;
  const isPowerOfTwo = ranks => Number.isInteger(Math.log2(ranks));

  const ring = (link, ranks, bytes) => 2 * (ranks - 1) * message(link, bytes / ranks);
  const tree = (link, ranks, bytes) => 2 * Math.ceil(Math.log2(ranks)) * message(link, bytes);

  const halvingDoubling = (link, ranks, bytes) => {
    const partners = Math.floor(Math.log2(ranks));
    const power = 2 ** partners;
    const exchanges = 2 * partners * link.latency + 2 * link.perByte * bytes * (power - 1) / power;
    return exchanges + (isPowerOfTwo(ranks) ? 0 : 2 * message(link, bytes));
  };

  /** Null if there is more than one node and one of them is not full. */
  const hierarchicalRing = (link, ranks, bytes) => {
    if (ranks <= PER_NODE) return ring(link, ranks, bytes);
    if (ranks % PER_NODE !== 0) return null;
    const inNodes = 2 * (PER_NODE - 1) * message(link, bytes / PER_NODE);
    return inNodes + 2 * (ranks / PER_NODE - 1) * message(link, bytes / ranks);
  };

  /** The methods by name, each a function to seconds. */
  pictures.costs = {
    "server": (link, ranks, bytes) => 2 * (ranks - 1) * message(link, bytes),
    "ring": ring,
    "tree": tree,
    "halving-doubling": halvingDoubling,
    "hierarchical ring": hierarchicalRing,
  };

  /** The smallest number of ranks for which the tree is faster than the ring, or null if there is none. */
  pictures.treeOvertakesRing = (link, bytes) => {
    for (let ranks = 2; ranks <= MOST; ranks++) {
      if (tree(link, ranks, bytes) < ring(link, ranks, bytes)) return ranks;
    }
    return null;
  };
}
