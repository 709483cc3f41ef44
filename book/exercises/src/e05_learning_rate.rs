//! Scale the learning rate (chapter: ddp-mnist.md)
//!
//! `base` is a good learning rate for a batch of 256. Return the rate of step `step` by the linear scaling rule: it
//! grows with the effective batch, which is the number of samples of all ranks in a step. During a warm-up of `warmup`
//! steps the rate rises linearly from `base`, and it reaches the scaled rate in step `warmup`.

use crate::prelude::*;

pub fn learning_rate(base: f64, batch: usize, ranks: usize, step: usize, warmup: usize) -> f64 {
    todo!("scale by the effective batch, with a warm-up")
}

pub fn check(
    group: &ProcessGroup,
    learning_rate: impl Fn(f64, usize, usize, usize, usize) -> f64,
) -> Result<()> {
    let rates = [(256, 1, 9), (256, 8, 0), (256, 8, 5), (256, 8, 10), (64, 8, 99)]
        .map(|(batch, world_size, step)| learning_rate(0.1, batch, world_size, step, 10));
    let expected = [0.1, 0.1, 0.45, 0.8, 0.2];
    agree(group, "the rates", &Tensor::from_slice(&rates), &Tensor::from_slice(&expected))
}
