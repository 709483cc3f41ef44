//! The weights and gradients of whole models, for comparing ways to train.

use tch::{Device, Kind, Tensor, no_grad};
use tch::{kind::FLOAT_CPU, nn::VarStore};

/// The number of trainable parameters.
pub fn parameters(vs: &VarStore) -> usize {
    vs.trainable_variables().iter().map(Tensor::numel).sum()
}

/// The gradients of all parameters in one row, on the CPU.
pub fn gradients(vs: &VarStore) -> Tensor {
    let flat = |parameter: &Tensor| parameter.grad().to_device(Device::Cpu).view([-1]);
    Tensor::cat(&vs.trainable_variables().iter().map(flat).collect::<Vec<_>>(), 0)
}

/// Sets weights around `mean` that depend only on their positions. Drawn ones would differ: tests share one generator.
pub fn set_weights(vs: &VarStore, mean: f64) {
    for (number, mut weight) in vs.trainable_variables().into_iter().enumerate() {
        let count = Tensor::arange(weight.numel() as i64, FLOAT_CPU);
        let values = (count * 0.7 + number as f64).sin() * 0.2 + mean;
        no_grad(|| weight.copy_(&values.view_as(&weight)));
    }
}

/// How far gradients are from the expected ones, relative to their length.
pub fn distance(found: &Tensor, expected: &Tensor) -> f64 {
    let [found, expected] = [found, expected].map(|gradients| gradients.to_kind(Kind::Double));
    (found - &expected).norm().double_value(&[]) / expected.norm().double_value(&[])
}
