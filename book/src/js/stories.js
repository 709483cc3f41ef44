"use strict";

/* The stories of async-update/src/exhibits/trace: while GPU1 computes one step, GPU2 makes several updates. */
{
  const THETA_A = [4, -2];
  const GPUS = { GPU1: { h: 2, m: [0, 1] }, GPU2: { h: 1, m: [-2, 2] } };

  const add = (one, other) => one.map((value, at) => value + other[at]);
  const subtract = (one, other) => one.map((value, at) => value - other[at]);

  pictures.gpus = GPUS;

  /** The step ΔP(θ) against the gradient of a GPU's loss. */
  pictures.stepOf = (gpu, theta, eta) => subtract(theta, GPUS[gpu].m).map(distance => -eta * GPUS[gpu].h * distance);

  /** The loss on a GPU's data, ½ h (θ - m)². */
  pictures.lossOf = (gpu, theta) =>
    pictures.sum(subtract(theta, GPUS[gpu].m).map(distance => 0.5 * GPUS[gpu].h * distance ** 2));

  /** What happens until GPU1 adds its step, before which GPU2 makes this many updates. A write has the version that it
      makes, the one that its step was computed for, and its staleness. With it come two other endings: with a step of GPU1
      that is fresh, and with both steps at once. */
  pictures.story = ({ updates, eta }) => {
    const versions = [THETA_A];
    const events = [];
    const now = () => versions.length - 1;
    const read = gpu => {
      const event = { does: "reads", gpu, version: now() };
      events.push(event);
      return event;
    };
    const write = ({ gpu, version: read }) => {
      const staleness = now() - read;
      versions.push(add(versions[now()], pictures.stepOf(gpu, versions[read], eta)));
      events.push({ does: "writes", gpu, version: now(), read, staleness });
    };
    const slow = read("GPU1");
    for (let update = 0; update < updates; update++) write(read("GPU2"));
    const before = versions[now()];
    write(slow);
    const [one, other] = Object.keys(GPUS).map(gpu => pictures.stepOf(gpu, THETA_A, eta));
    const fresh = add(before, pictures.stepOf("GPU1", before, eta));
    return { versions, events, fresh, synchronous: add(THETA_A, add(one, other)) };
  };
}
