//! Sums and counts over all ranks.

use super::process_group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::ReduceOp;
use tch::{Kind, Tensor};

/// A running mean over samples that are spread over the ranks.
///
/// The mean of the ranks' means is wrong if ranks hold different numbers of samples. So sum and
/// count are reduced, and divided afterwards. bobondemon's "Distributed Data Parallel and Its
/// Pytorch Example" has a class of this name in its appendix (S1.52); PyTorch has none.
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
    /// In f64, so that the sum over an epoch of f32 values loses nothing visible.
    sum: f64,
    count: u64,
}

impl AvgMetric {
    /// A metric without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `count` values whose sum is `sum`. For a batch's mean loss, pass the loss times the
    /// batch size, and the batch size.
    pub fn update(&mut self, sum: f64, count: usize) {
        self.sum += sum;
        self.count += count as u64;
    }

    /// The mean over the samples of all ranks, the same on every rank; NaN if there are none.
    ///
    /// A collective: every rank must call it at the same point between its other collectives;
    /// otherwise the ranks that did wait until the timeout.
    ///
    /// # Errors
    /// Those of [every collective](ProcessGroup#errors).
    // ANCHOR: summarize
    pub fn summarize(&self, group: &ProcessGroup) -> Result<f64> {
        // gloo and NCCL both support f64, in which a count is exact up to 2^53.
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
