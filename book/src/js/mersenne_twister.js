"use strict";

/* The generator of PyTorch's CPU, MT19937 (Matsumoto and Nishimura 1998), and the permutations that torch.randperm
   draws from it. */
{
  const WORDS = 624;
  const MIDDLE = 397;

  const seeded = seed => {
    const state = new Uint32Array(WORDS);
    state[0] = seed;
    for (let at = 1; at < WORDS; at++) {
      const previous = state[at - 1];
      state[at] = Math.imul(1812433253, previous ^ (previous >>> 30)) + at;
    }
    return state;
  };

  const twist = state => {
    for (let at = 0; at < WORDS; at++) {
      const joined = (state[at] & 0x80000000) | (state[(at + 1) % WORDS] & 0x7fffffff);
      state[at] = state[(at + MIDDLE) % WORDS] ^ (joined >>> 1) ^ (joined & 1 ? 0x9908b0df : 0);
    }
  };

  const temper = word => {
    word ^= word >>> 11;
    word ^= (word << 7) & 0x9d2c5680;
    word ^= (word << 15) & 0xefc60000;
    return (word ^ (word >>> 18)) >>> 0;
  };

  /** A function that returns the next 32 random bits at each call, as a number. */
  const mersenneTwister = seed => {
    const state = seeded(seed);
    let at = WORDS;
    return () => {
      if (at === WORDS) {
        twist(state);
        at = 0;
      }
      return temper(state[at++]);
    };
  };

  /** The numbers below `count` in random order: `torch.randperm` with a generator of this seed. */
  pictures.randperm = (count, seed) => {
    const random = mersenneTwister(seed);
    const order = Array.from({ length: count }, (_, index) => index);
    for (let at = 0; at < count - 1; at++) {
      const other = at + (random() % (count - at));
      [order[at], order[other]] = [order[other], order[at]];
    }
    return order;
  };
}
