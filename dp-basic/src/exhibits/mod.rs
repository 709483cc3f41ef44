//! Programs that explain and compare.
//!
//! | exhibit | what it shows |
//! |---|---|
//! | [`trace`] | one step of DataParallel, part by part: the place of each tensor, bytes copied, times |
//! | [`answers`] | the questions of two forum threads, answered by numbers |
//! | [`model_parallel`] | a model in two parts on two devices |
//! | [`speedup`] | a step on 1, 2 and 4 devices, timed |
//!
//! `trace` and `model-parallel` share `spans`: which device worked when, as tables and as a picture.

pub mod answers;
pub mod model_parallel;
mod spans;
pub mod speedup;
pub mod trace;

use anyhow::{Result, ensure};
use tch::nn::VarStore;
use tch::{Device, Tensor};

/// Refuses an empty batch, before a large model is built.
fn check_batch(batch: i64) -> Result<()> {
    ensure!(batch > 0, "--batch is {batch}, but must be at least 1: a row is needed to train");
    Ok(())
}

/// The number of trainable parameters.
pub fn parameters(vs: &VarStore) -> usize {
    vs.trainable_variables().iter().map(Tensor::numel).sum()
}

/// The gradients of all parameters in one row, on the CPU.
pub fn gradients(vs: &VarStore) -> Tensor {
    let gradients = vs.trainable_variables().into_iter().map(|parameter| parameter.grad());
    let flat: Vec<_> =
        gradients.map(|gradient| gradient.to_device(Device::Cpu).view([-1])).collect();
    Tensor::cat(&flat, 0)
}
