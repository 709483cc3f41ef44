//! Programs that explain and compare.
//!
//! `trace` and `model-parallel` share `spans`: which device worked when, as tables and as a picture.

pub mod answers;
pub mod model_parallel;
mod spans;
pub mod speedup;
pub mod trace;

use tch::kind::{FLOAT_CPU, INT64_CPU};
use tch::nn::VarStore;
use tch::{Device, Tensor};

/// Inputs `[rows, features]` and classes `[rows]`, which depend only on their positions.
pub fn synthetic_batch(rows: i64, features: i64, classes: i64) -> (Tensor, Tensor) {
    (waves(&[rows, features]), count(rows).remainder(classes))
}

/// Numbers between -1 and 1 that depend only on their positions.
pub fn waves(shape: &[i64]) -> Tensor {
    let size = shape.iter().product::<i64>();
    (Tensor::arange_start(1, 1 + size, FLOAT_CPU) * 0.7).sin().view(shape)
}

/// The whole numbers from 0.
pub fn count(rows: i64) -> Tensor {
    Tensor::arange(rows, INT64_CPU)
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
