"use strict";

/* A model that is sharded over ranks, as in core/src/distributed/fsdp: the collectives of a step with the memory of a rank
   during each, and the memory at the peak beside that of other methods. All in bytes. */
{
  const { sum } = pictures;
  const ROOT = "root";

  /** The collectives of a step, "AG" for an all-gather and "RS" for a reduce-scatter. A unit's weights are gathered while the
      unit after it computes its gradients. */
  const collectives = blocks => {
    const numbers = Array.from({ length: blocks }, (_, block) => block);
    const gather = (pass, unit) => ({ pass, kind: "AG", unit });
    const backward = block => [...(block > 0 ? [gather("backward", block - 1)] : []), { pass: "backward", kind: "RS", unit: block }];
    return [...[ROOT, ...numbers].map(unit => gather("forward", unit)), gather("backward", blocks - 1),
      ...numbers.reverse().flatMap(backward), { pass: "backward", kind: "RS", unit: ROOT }];
  };

  /** A step with Adam, of a model with weights of `root` bytes in the root and `block` bytes in each block: the state between
      two steps, during each collective, and while the optimizer steps. The root's layers come before the blocks. */
  pictures.shardedStep = ({ blocks, ranks, root, block }) => {
    const size = unit => unit === ROOT ? root : block;
    const all = [ROOT, ...Array(blocks).keys()];
    const model = sum(all.map(size));
    // The memory that freed units leave to the next ones: two blocks and the root are whole at the same time.
    const pool = root + Math.min(blocks, 2) * block;
    const frame = (event, whole, gradient, reduced) => {
      const units = sum(whole.map(size));
      const bytes = { weights: model / ranks, state: 2 * model / ranks, gradients: sum(reduced.map(size)) / ranks, units,
        unreduced: gradient === null ? 0 : size(gradient), kept: pool - units };
      return { ...event, whole, gradient, reduced, bytes };
    };
    const frames = [frame({ kind: "begin" }, [], null, all)];
    let [whole, reduced] = [[], all];
    for (const event of collectives(blocks)) {
      const { pass, kind, unit } = event;
      const isFirstOfBackward = pass === "backward" && unit === blocks - 1 && kind === "AG";
      if (isFirstOfBackward) reduced = [];
      // In the forward pass, a block is freed before the next one is gathered.
      if (pass === "forward" || isFirstOfBackward) whole = whole.filter(each => each === ROOT);
      whole = kind === "AG" ? [...whole, unit] : whole.filter(each => each !== unit);
      if (kind === "RS") reduced = [...reduced, unit];
      frames.push(frame(event, whole, kind === "RS" ? unit : null, reduced));
    }
    return [...frames, frame({ kind: "end" }, [], null, all)];
  };

  const NUMBER = 4;
  // The bytes that each optimizer keeps per parameter.
  const STATES = { "SGD": 0, "SGD with momentum": NUMBER, "Adam, AdamW": 2 * NUMBER };
  pictures.shardingOptimizers = Object.keys(STATES);
  // The bytes of a parameter in a whole unit.
  const WHOLE = { "f32": NUMBER, "bf16 policy": 2 };
  pictures.shardingPrecisions = Object.keys(WHOLE);

  /** What a rank holds at the peak of a step by each method. `unit` is the largest unit's share of the parameters. */
  pictures.shardingMemory = ({ parameters, optimizer, precision, ranks, unit }) => {
    const [all, state] = [NUMBER * parameters, STATES[optimizer] * parameters];
    const whole = WHOLE[precision] * unit * parameters;
    const copies = { weights: all, gradients: all, buckets: all };
    return {
      "DDP": { ...copies, state },
      "DDP with ZeRO-1": { ...copies, state: state / ranks },
      "FullyShard": { weights: all / ranks, gradients: all / ranks, state: state / ranks, units: Math.min(2 * whole, WHOLE[precision] * parameters), unreduced: whole },
    };
  };
}
