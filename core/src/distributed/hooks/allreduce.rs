//! The mean of the gradients over the ranks.

use super::{CommHook, Finish, GradBucket};
use crate::distributed::{Pending, ProcessGroup, ReduceOp};
use crate::{Error, Result};
use tch::Tensor;

/// Divides by the number of ranks, then sums: what happens without a hook, as a hook.
/// `default_hooks.allreduce_hook`
#[derive(Debug, Clone, Copy, Default)]
pub struct AllReduce;

impl CommHook for AllReduce {
    fn name(&self) -> String {
        "allreduce_hook".into()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let mean = mean(group, bucket.buffer()?)?;
        Ok(Box::new(move || mean.wait()))
    }
}

/// The mean of `tensor` over the ranks, in place. Divides first, which keeps sums of half precision
/// from overflowing.
pub(super) fn mean(group: &ProcessGroup, mut tensor: Tensor) -> Result<Pending<Tensor>> {
    let _ = tensor
        .f_div_scalar_(group.world_size() as i64)
        .map_err(Error::tensor("division by the world size"))?;
    group.all_reduce_async(tensor, ReduceOp::Sum)
}
