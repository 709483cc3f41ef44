//! Batches divided over several ranks, and how close their results must be to those of one process.

use crate::prelude::*;

pub const CHANNELS: i64 = 3;

/// The shape of each channel of a sample.
pub const IMAGE: &[i64] = &[4, 5];

/// A batch of all ranks together; rank r has `rows[r]` rows of it.
pub struct Batch<'a> {
    pub rows: &'a [i64],
    pub images: Tensor,
    pub targets: Tensor,
}

impl<'a> Batch<'a> {
    pub fn new(rows: &'a [i64], sample: &[i64], step: i64) -> Self {
        let size = [&[rows.iter().sum(), CHANNELS], sample].concat();
        let numbers = Tensor::arange(size.iter().product::<i64>(), FLOAT_CPU);
        // No two ranks' rows have the same mean, nor the same variance.
        let images =
            (&numbers * 0.37 + step as f64).sin() * (&numbers * 0.005 + 1) + &numbers * 0.01;
        let targets = (numbers * 0.61 + step as f64).cos();
        Batch { rows, images: images.view(&size[..]), targets: targets.view(&size[..]) }
    }

    /// This rank's rows of a tensor that holds all ranks' rows.
    pub fn part(&self, group: &ProcessGroup, all: &Tensor) -> Tensor {
        all.narrow(0, self.rows[..group.rank()].iter().sum(), self.rows[group.rank()])
    }
}

/// Fails unless the largest difference, relative to the largest number expected, is below `tolerance`.
pub fn assert_close(what: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(found.size(), expected.size(), "{what}");
    if expected.numel() > 0 {
        let largest = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
        let difference = largest(&(found - expected)) / largest(expected).max(1.0);
        assert!(difference < tolerance, "{what} is wrong by {difference}");
    }
}

/// Gives every parameter different values, none of them a layer's initial one.
pub fn vary_weights(vs: &VarStore) {
    for (index, mut parameter) in vs.trainable_variables().into_iter().enumerate() {
        let values = Tensor::arange(parameter.numel() as i64, (parameter.kind(), Device::Cpu));
        no_grad(|| parameter.copy_(&(values * 0.4 + 0.3 * (index + 1) as f64).view_as(&parameter)));
    }
}
