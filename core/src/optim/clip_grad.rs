//! `torch.nn.utils.clip_grad` for whole gradients and for shards.

use crate::Result;
use crate::distributed::ReduceOp;
use crate::distributed::fsdp::shards;
use tch::Tensor;
use tch_parallel_optim::clip_grad_norm_of_parts;

/// [`tch_parallel_optim::clip_grad_norm_`], also for shards of
/// [`FullyShard`](crate::distributed::FullyShard). For these it is a collective: the norm is that
/// of the whole gradients, with the same bits as for PyTorch's DTensors.
///
/// # Errors
/// Those of that function; [`Error::Argument`](crate::Error::Argument) if the list mixes shards and
/// whole parameters; [`Error::Collective`](crate::Error::Collective) if another rank has died or
/// did not arrive within the timeout.
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64) -> Result<f64> {
    let Some(group) = shards::group_of(parameters)? else {
        return tch_parallel_optim::clip_grad_norm_(parameters, max_norm);
    };
    clip_grad_norm_of_parts(parameters, max_norm, |norms| {
        let mut squares = norms.f_square()?;
        group.all_reduce(&mut squares, ReduceOp::Sum)?;
        Ok(squares.f_sqrt()?)
    })
}
