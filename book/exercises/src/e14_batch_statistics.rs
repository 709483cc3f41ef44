//! Statistics of a batch over all ranks (chapter: batch-norm-across-ranks.md)
//!
//! Return what SyncBatchNorm normalises with: the mean and the biased variance of each column, over the rows of all
//! ranks. Ranks can have different numbers of rows. One exchange is enough if it contains sums, sums of squares and
//! numbers of rows.

use crate::prelude::*;

pub fn batch_statistics(group: &ProcessGroup, rows: &Tensor) -> Result<(Tensor, Tensor)> {
    todo!("all-reduce the sums, and compute mean and variance from them")
}

pub fn check(
    group: &ProcessGroup,
    batch_statistics: impl Fn(&ProcessGroup, &Tensor) -> Result<(Tensor, Tensor)>,
) -> Result<()> {
    let all = Tensor::from_slice(&[1f32, -2.0, 3.0, 0.0, 8.0, 5.0]).view([3, 2]);
    let own = all.split_with_sizes([2, 1], 0).swap_remove(group.rank());
    let (mean, variance) = batch_statistics(group, &own)?;
    agree(group, "the mean", &mean, &all.mean_dim(0, false, None))?;
    agree(group, "the variance", &variance, &all.var_dim(0, false, false))
}
