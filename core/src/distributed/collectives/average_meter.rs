//! A mean over the samples of all ranks.

use crate::{Result, distributed::group::ProcessGroup};
use c10d_sys::ReduceOp;
use serde::{Deserialize, Serialize};
use tch::Tensor;

/// The last value and the mean of all values: the class of this name in ImageNet's main.py, of pytorch/examples.
///
/// The mean of the ranks' means is wrong if ranks hold different numbers of samples. So sum and count are reduced, and
/// divided afterwards. It can be saved, so that a run that is resumed in the middle of an epoch keeps the epoch's mean.
///
/// ```
/// use tch_parallel::distributed::{AverageMeter, ProcessGroup};
///
/// let group = ProcessGroup::from_env()?;
/// let mut loss = AverageMeter::default();
/// loss.update(0.5, 128); // the mean loss of a batch of 128
/// loss.update(2.0, 64); // the last batch is smaller
/// assert_eq!((loss.val(), loss.avg()), (2.0, 1.0));
/// assert_eq!(loss.all_reduce(&group)?, 1.0); // over all ranks, here one
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AverageMeter {
    val: f64,
    /// In f64, so that the sum over an epoch of f32 values loses nothing visible.
    sum: f64,
    count: usize,
}

impl AverageMeter {
    /// Adds `val`, the mean of `n` samples.
    pub fn update(&mut self, val: f64, n: usize) {
        self.val = val;
        self.sum += val * n as f64;
        self.count += n;
    }

    /// The last value.
    pub fn val(&self) -> f64 {
        self.val
    }

    /// The mean over this rank's samples; NaN if there are none.
    pub fn avg(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The mean over the samples of all ranks, the same on every rank; NaN if there are none. The
    /// meter itself goes on with this rank's samples; main.py's takes over the sum of all.
    ///
    /// A collective: all ranks must call it at one point between the others, or those that did wait until the timeout.
    // ANCHOR: all_reduce
    pub fn all_reduce(&self, group: &ProcessGroup) -> Result<f64> {
        // gloo and NCCL both support f64, in which a count is exact up to 2^53.
        let both = Tensor::from_slice(&[self.sum, self.count as f64]);
        let mut both = both.to(group.exchange_device());
        group.on_host().all_reduce(&mut both, ReduceOp::Sum)?;
        let at = |index| both.f_double_value(&[index]);
        Ok(at(0)? / at(1)?)
    }
    // ANCHOR_END: all_reduce
}
