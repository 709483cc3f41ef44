"use strict";

/* A step of DataParallel with the model that `dp-basic trace` shows by default: an embedding of 1,000 tokens and a linear
   layer. `held` follows the numbered steps of the chapter. */
{
  const BYTES_OF_TOKEN = 8;
  const BYTES_OF_OUTPUTS = 10 * 4;
  const BYTES_OF_WEIGHTS = 10_110 * 4;

  pictures.dataParallelSteps = ["scatter", "replicate", "parallel_apply", "gather", "loss", "scatter gradients", "backward",
    "reduce gradients", "optimizer step"];

  const range = (start, end) => Array.from({ length: Math.max(0, end - start) }, (_, index) => start + index);

  /** The rows of each device's chunk, none for an idle device. A chunk has rows / devices rows, rounded up, as in
      `torch.chunk`. */
  const divide = (devices, rows) => {
    const size = Math.ceil(rows / devices);
    return range(0, devices).map(device => range(device * size, Math.min(rows, (device + 1) * size)));
  };

  /** What a device holds after a step; 0 is before the first. Rows are numbers of rows of the batch. The gradients of the
      weights are a list of the replicas whose gradients have been added up. */
  const held = (device, step, chunk, rows, replicas) => {
    const isFirst = device === 0;
    const isAtWork = chunk.length > 0;
    const between = (first, last, items) => first <= step && step <= last ? items : [];
    const replica = isAtWork && 2 <= step && step <= 8 ? "copy" : "old copy";
    const own = isAtWork ? [device] : [];
    return {
      batch: isFirst ? rows : between(1, 7, chunk),
      weights: [isFirst ? step === 9 ? "updated" : "original" : replica],
      outputs: isFirst ? [...between(3, 3, chunk), ...between(4, 9, rows)] : between(3, 4, chunk),
      outputGradients: isFirst ? between(5, 7, rows) : between(6, 7, chunk),
      gradients: isFirst ? [...between(7, 7, own), ...between(8, 9, replicas)] : between(7, 8, own),
    };
  };

  /** What a step copies between the first device and another one that is at work, or null. */
  const copy = (step, device, chunk) => {
    const send = (of, items, bytes) => ({ from: 0, to: device, of, items, bytes });
    const bring = (of, items, bytes) => ({ from: device, to: 0, of, items, bytes });
    switch (step) {
      case 1: return send("batch", chunk, chunk.length * BYTES_OF_TOKEN);
      case 2: return send("weights", ["original"], BYTES_OF_WEIGHTS);
      case 4: return bring("outputs", chunk, chunk.length * BYTES_OF_OUTPUTS);
      case 6: return send("outputGradients", chunk, chunk.length * BYTES_OF_OUTPUTS);
      case 8: return bring("gradients", [device], BYTES_OF_WEIGHTS);
      default: return null;
    }
  };

  /** The chunks, and for each step from 0 to 9 what the devices then hold and what has just been copied. */
  pictures.dataParallel = ({ devices, rows }) => {
    const chunks = divide(devices, rows);
    const replicas = range(0, devices).filter(device => chunks[device].length > 0);
    const frames = range(0, pictures.dataParallelSteps.length + 1).map(step => ({
      held: chunks.map((chunk, device) => held(device, step, chunk, range(0, rows), replicas)),
      copies: replicas.slice(1).map(device => copy(step, device, chunks[device])).filter(made => made !== null),
    }));
    return { chunks, frames };
  };
}
