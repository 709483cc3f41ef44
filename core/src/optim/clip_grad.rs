//! `torch.nn.utils.clip_grad` for whole gradients and for shards.

use crate::distributed::{ReduceOp, fsdp::shards};
use crate::{Error, Result};
use c10d_sys::arithmetic::pow_number_;
use tch::{Kind, Tensor};
use tch_parallel_optim::{ClipGradNormOptions, clip_grad_norm_of_parts};

/// [`tch_parallel_optim::clip_grad_norm_`], also for shards of [`FullyShard`](crate::distributed::FullyShard). For
/// these it is a collective: the norm is that of the whole gradients, with the same bits as for PyTorch's DTensors.
///
/// # Errors
/// Those of that function; [`Error::Argument`] if the list mixes shards and whole parameters, or for a negative
/// `norm_type` of shards, or for an infinite one beside a rank that runs Python; [`Error::Collective`] if another
/// rank has died or did not arrive within the timeout.
pub fn clip_grad_norm_(
    parameters: &[Tensor],
    options: impl Into<ClipGradNormOptions>,
) -> Result<f64> {
    let Some(group) = shards::group_of(parameters)? else {
        return tch_parallel_optim::clip_grad_norm_(parameters, options);
    };
    let options = options.into();
    if options.norm_type < 0.0 {
        let expected = "not negative for shards: an empty one has no such norm";
        return Err(Error::argument("norm_type", options.norm_type, expected));
    }
    if options.norm_type == f64::INFINITY {
        group.refuse_python("clip_grad_norm_ with an infinite norm_type", 0..group.world_size())?;
    }
    let (power, reduction) = match options.norm_type {
        f64::INFINITY => (1.0, ReduceOp::Max),
        // The number of elements that are not 0.
        0.0 => (1.0, ReduceOp::Sum),
        norm_type => (norm_type, ReduceOp::Sum),
    };
    clip_grad_norm_of_parts(parameters, options, |mut norms| {
        pow_number_(&mut norms, power)?;
        // Gloo's largest of NaN and a number may be the number.
        let mut are_nan = norms.f_isnan()?.f_to_kind(norms.kind())?;
        group.all_reduce(&mut norms, reduction)?;
        if reduction == ReduceOp::Max {
            group.all_reduce(&mut are_nan, reduction)?;
            let _ = norms.f_masked_fill_(&are_nan.f_to_kind(Kind::Bool)?, f64::NAN)?;
        }
        pow_number_(&mut norms, 1.0 / power)?;
        Ok(norms)
    })
}
