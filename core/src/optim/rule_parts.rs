//! What the rules of several optimizers have in common.

use crate::{Error, Result};
use std::hint::black_box;
use tch::{TchError, Tensor};

/// The gradient with the sign for going down: `-gradient` for `maximize`.
pub(super) fn downwards(gradient: &Tensor, maximize: bool) -> Result<Tensor, TchError> {
    if maximize { gradient.f_neg() } else { Ok(gradient.shallow_clone()) }
}

/// `torch.view_as_real` of a complex tensor: PyTorch's optimizers treat a complex number as two
/// independent real ones. Another tensor is returned as it is.
pub(super) fn as_real(tensor: &Tensor) -> Result<Tensor, TchError> {
    if tensor.f_is_complex()? { tensor.f_view_as_real() } else { Ok(tensor.shallow_clone()) }
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
