"use strict";

/* The memory of a BERT's training on each device, in bytes: what book/src/bert-memory.md has formulas for, with the
   outputs as in dp-custom-criterion/src/exhibits/compare/formula.rs. */
{
  const { sum } = pictures;
  const NUMBER = 4;
  // The rows of the table of positions, which is not trained.
  const POSITIONS = 512;

  /** Where each method gathers the outputs, and whether every device is a rank with a model of its own. */
  const METHODS = {
    "data-parallel": { gathers: () => 0 },
    "output-device": { gathers: devices => Math.min(1, devices - 1) },
    "custom-criterion": {},
    "ddp": { ranks: true },
    "ddp with ZeroRedundancyOptimizer": { ranks: true, zero: true },
  };
  pictures.bertMethods = Object.keys(METHODS);

  /** How many numbers each trained tensor has: the embeddings of words and segments, the blocks, and the two heads. */
  const trainedTensors = ({ words, hidden, layers }) => {
    const norm = [hidden, hidden];
    const linear = (from, to) => [from * to, to];
    const attention = Array.from({ length: 4 }, () => linear(hidden, hidden)).flat();
    const feedForward = [...linear(hidden, 4 * hidden), ...linear(4 * hidden, hidden)];
    const blocks = Array.from({ length: layers }, () => [...attention, ...feedForward, ...norm, ...norm]).flat();
    return [words * hidden, 3 * hidden, ...blocks, ...linear(hidden, 2), ...linear(hidden, words)];
  };

  /** The tensors of each rank, as in core/src/optim/zero_redundancy.rs: largest first, each goes to the rank with the
      least. */
  const partition = (tensors, ranks) => {
    const shares = Array.from({ length: ranks }, () => []);
    const loads = shares.map(() => 0);
    for (const size of [...tensors].sort((one, other) => other - one)) {
      const rank = loads.indexOf(Math.min(...loads));
      shares[rank].push(size);
      loads[rank] += size;
    }
    return shares;
  };

  // Two means for each number, and a count of steps for each tensor.
  const adamsState = tensors => NUMBER * (2 * sum(tensors) + tensors.length);

  /** The bytes of Adam's state on each of `ranks` with ZeroRedundancyOptimizer. */
  pictures.zeroRedundancy = (tensors, ranks) => partition(tensors, ranks).map(adamsState);

  /** The bytes of a share of the outputs, whether the formula of the peak holds, and what each device has. */
  pictures.bertMemory = model => {
    const { method, devices, pairs, words, tokens, hidden } = model;
    const { gathers = () => null, ranks = false, zero = false } = METHODS[method];
    const tensors = trainedTensors(model);
    const gradients = NUMBER * sum(tensors);
    const share = NUMBER * pairs * tokens * words;
    const states = zero ? pictures.zeroRedundancy(tensors, devices) : Array(devices).fill(adamsState(tensors));
    const on = device => {
      const trains = ranks || device === 0;
      const shares = device === gathers(devices) ? 3 * devices + 1 : 4;
      return {
        weights: gradients + NUMBER * POSITIONS * hidden,
        gradients: trains ? gradients : 0,
        state: trains ? states[device] : 0,
        buckets: ranks ? gradients : 0,
        outputs: shares * share,
        shares,
      };
    };
    return { share, holds: gradients < 2 * share, devices: Array.from({ length: devices }, (_, device) => on(device)) };
  };
}
