//! What the rules of several optimizers have in common.

use super::tensor_list::TensorList;
use crate::{Error, Result};
use std::hint::black_box;
use tch::{TchError, Tensor};

/// Weight decay: how an optimizer draws the weights towards zero.
#[derive(Debug, Clone, Copy)]
pub(super) enum WeightDecay {
    /// Added to the gradient (L2 penalty).
    Penalty(f64),
    /// Applied to the parameters, which are multiplied by this number.
    Decoupled(f64),
}

impl WeightDecay {
    /// The decay of optimizers that have both kinds.
    pub(super) fn new(weight_decay: f64, decoupled: bool, lr: f64) -> Self {
        match decoupled && weight_decay != 0.0 {
            true => WeightDecay::Decoupled(1.0 - lr * weight_decay),
            false => WeightDecay::Penalty(weight_decay),
        }
    }
}

/// The parameters and the gradients to go down, complex numbers as pairs of real ones, after the
/// weight decay.
///
/// PyTorch's optimizers treat a complex number as two independent real ones. Some of their
/// single-tensor functions do so only after the decay, which rounds differently.
pub(super) fn decayed(
    parameters: &TensorList,
    gradients: &TensorList,
    maximize: bool,
    decay: WeightDecay,
) -> Result<(TensorList, TensorList)> {
    let (mut parameters, gradients) = match parameters.is_foreach() {
        true => (parameters.as_real()?, gradients.as_real()?),
        false => (parameters.shallow_clone(), gradients.shallow_clone()),
    };
    let mut gradients = downwards(&gradients, maximize)?;
    match decay {
        WeightDecay::Penalty(0.0) => {}
        WeightDecay::Penalty(weight_decay) => {
            gradients = gradients.add_scaled(&parameters, weight_decay)?;
        }
        WeightDecay::Decoupled(factor) => parameters.mul_number_(factor)?,
    }
    Ok((parameters.as_real()?, gradients.as_real()?))
}

/// Applies `f` to each number.
pub(super) fn each(numbers: &[f64], f: impl Fn(f64) -> f64) -> Vec<f64> {
    numbers.iter().copied().map(f).collect()
}

/// The gradients with the sign for going down: `-gradient` for `maximize`.
pub(super) fn downwards(gradients: &TensorList, maximize: bool) -> Result<TensorList> {
    if maximize { gradients.neg() } else { Ok(gradients.shallow_clone()) }
}

/// Python's `number ** 0.5`, which can differ from the square root in the last bit. The compiler
/// would replace a power with a known exponent of 0.5 by the square root.
pub(super) fn power_of_a_half(number: f64) -> f64 {
    number.powf(black_box(0.5))
}

/// Refuses the same decay rates of moving averages as PyTorch.
pub(super) fn check_betas(betas: (f64, f64)) -> Result<()> {
    for (what, beta) in [("betas.0", betas.0), ("betas.1", betas.1)] {
        if !(0.0..1.0).contains(&beta) {
            return Err(Error::argument(what, beta, "at least 0 and below 1"));
        }
    }
    Ok(())
}

/// A sparse tensor of the gradient's shape, with these values where the gradient has its own.
pub(super) fn with_values(gradient: &Tensor, values: &Tensor) -> Result<Tensor, TchError> {
    let place = (values.f_kind()?, values.device());
    let is_coalesced = false;
    Tensor::f_sparse_coo_tensor_indices_size(
        &gradient.f_internal_indices()?,
        values,
        gradient.size(),
        place,
        is_coalesced,
    )
}
