//! Sums and counts over all ranks.

use super::process_group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::ReduceOp;
use tch::{Kind, Tensor};

/// A running mean over samples, of which every rank sees a part.
///
/// The mean of the ranks' means is not the mean where they hold different numbers of samples; sum
/// and count are reduced instead, and divided afterwards. bobondemon's "Distributed Data Parallel
/// and Its Pytorch Example" has a class of this name in its appendix (S1.52); PyTorch has none.
///
/// ```
/// use tch_parallel::distributed::{AvgMetric, ProcessGroup};
///
/// let group = ProcessGroup::from_env()?;
/// let mut loss = AvgMetric::new();
/// loss.update(0.5 * 128.0, 128); // a batch of 128 with a mean loss of 0.5
/// loss.update(2.0 * 64.0, 64); // the last batch is smaller
/// assert_eq!(loss.summarize(&group)?, 1.0);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AvgMetric {
    /// In f64, so that adding up an epoch of f32 values loses nothing that a reader would see.
    sum: f64,
    count: u64,
}

impl AvgMetric {
    /// A metric that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `count` values whose sum is `sum`. A batch's mean loss comes in as the loss times the
    /// size of the batch, and that batch's size.
    pub fn update(&mut self, sum: f64, count: usize) {
        self.sum += sum;
        self.count += count as u64;
    }

    /// The mean over the samples of all ranks, the same on every rank; NaN where there are none.
    ///
    /// A collective: every rank must call it, at the same place between its other collectives, or
    /// those that did will wait until the timeout.
    ///
    /// # Errors
    /// As of [every collective](ProcessGroup#errors).
    // ANCHOR: summarize
    pub fn summarize(&self, group: &ProcessGroup) -> Result<f64> {
        // gloo and NCCL both take f64; a count is exact in it up to 2^53.
        let mut both = Tensor::from_slice(&[self.sum, self.count as f64])
            .to_kind(Kind::Double)
            .to(group.exchange_device());
        group.all_reduce(&mut both, ReduceOp::Sum)?;
        let at =
            |index| both.f_double_value(&[index]).map_err(Error::tensor("AvgMetric::summarize"));
        Ok(at(0)? / at(1)?)
    }
    // ANCHOR_END: summarize
}
