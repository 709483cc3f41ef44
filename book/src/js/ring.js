"use strict";

/* The schedule of async-update/src/ring.rs, carried out on the numbers of ranks as in exhibits/ring/symbolic.rs. */
{
  const HALVES = [{ half: "scatter-reduce", first: rank => rank }, { half: "all-gather", first: rank => rank + 1 }];

  /** For each iteration which half it belongs to, and the chunk that each rank sends to its right neighbour. */
  const schedule = ranks => HALVES.flatMap(({ half, first }) => Array.from({ length: ranks.length - 1 }, (_, before) =>
    ({ half, sent: ranks.map(rank => (first(rank) + ranks.length - before) % ranks.length) })));

  /** As in the article's figure, the receiver's own part is written first of two, and last of more. */
  const add = (own, received) => received.length === 1 ? [...own, ...received] : [...received, ...own];

  /** The state before the first iteration and after each. `contents[rank][chunk]` lists the ranks whose parts have been
      added up, in this order; `sent[rank]` and `received[rank]` are the chunks that have just travelled. */
  pictures.ringAllReduce = n => {
    const ranks = Array.from({ length: n }, (_, rank) => rank);
    const left = rank => (rank + n - 1) % n;
    const states = [{ half: null, sent: [], received: [], contents: ranks.map(rank => ranks.map(() => [rank])) }];
    for (const { half, sent } of schedule(ranks)) {
      const before = states.at(-1).contents;
      const received = ranks.map(rank => sent[left(rank)]);
      const contents = ranks.map(rank => before[rank].map((own, chunk) => {
        if (chunk !== received[rank]) return own;
        const arrived = before[left(rank)][chunk];
        return half === "scatter-reduce" ? add(own, arrived) : arrived;
      }));
      states.push({ half, sent, received, contents });
    }
    return states;
  };
}
