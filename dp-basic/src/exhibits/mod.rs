//! Programs that explain and compare.
//!
//! `trace` and `model-parallel` share `spans`: which device worked when, as tables and as a picture.

pub mod answers;
pub mod model_parallel;
mod spans;
pub mod speedup;
pub mod trace;

pub use exhibit_kit::weights::{gradients, parameters};
use tch::{Tensor, kind::FLOAT_CPU, kind::INT64_CPU};

/// Inputs `[rows, features]` and classes `[rows]`, which depend only on their positions.
pub fn synthetic_batch(rows: i64, features: i64, classes: i64) -> (Tensor, Tensor) {
    (waves(&[rows, features]), count(rows).remainder(classes))
}

/// Numbers between -1 and 1 that depend only on their positions.
pub fn waves(shape: &[i64]) -> Tensor {
    (Tensor::arange_start(1, 1 + shape.iter().product::<i64>(), FLOAT_CPU) * 0.7).sin().view(shape)
}

/// The whole numbers from 0.
pub fn count(rows: i64) -> Tensor {
    Tensor::arange(rows, INT64_CPU)
}
