//! `torch.nn.utils.clip_grad` for whole gradients and for shards.

use crate::Result;
use crate::distributed::ReduceOp;
use crate::distributed::fsdp::shards;
use c10d_sys::arithmetic::pow_number_;
use tch::Tensor;
use tch_parallel_optim::{ClipGradNormOptions, clip_grad_norm_of_parts};

/// [`tch_parallel_optim::clip_grad_norm_`], also for shards of
/// [`FullyShard`](crate::distributed::FullyShard). For these it is a collective: the norm is that
/// of the whole gradients, with the same bits as for PyTorch's DTensors.
///
/// # Errors
/// Those of that function; [`Error::Argument`](crate::Error::Argument) if the list mixes shards and
/// whole parameters; [`Error::Collective`](crate::Error::Collective) if another rank has died or
/// did not arrive within the timeout.
pub fn clip_grad_norm_(
    parameters: &[Tensor],
    options: impl Into<ClipGradNormOptions>,
) -> Result<f64> {
    let Some(group) = shards::group_of(parameters)? else {
        return tch_parallel_optim::clip_grad_norm_(parameters, options);
    };
    let options = options.into();
    let (power, reduction) = match options.norm_type {
        f64::INFINITY => (1.0, ReduceOp::Max),
        f64::NEG_INFINITY => (1.0, ReduceOp::Min),
        // The number of elements that are not 0.
        0.0 => (1.0, ReduceOp::Sum),
        norm_type => (norm_type, ReduceOp::Sum),
    };
    clip_grad_norm_of_parts(parameters, options, |mut norms| {
        pow_number_(&mut norms, power)?;
        group.all_reduce(&mut norms, reduction)?;
        pow_number_(&mut norms, 1.0 / power)?;
        Ok(norms)
    })
}
