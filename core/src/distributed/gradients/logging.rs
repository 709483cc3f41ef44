//! DistributedDataParallel's measurements of itself.

use super::DistributedDataParallel;
use crate::{Error, Result};
use c10d_sys::Reducer;
use std::time::Duration;

/// The bucket sizes, and how the exchange overlapped with the backward pass.
///
/// PyTorch's counterpart is `model._get_ddp_logging_data()`, whose keys the fields are named after
/// (`c10::DDPLoggingData`). Times are averages over the sampled iterations: the first ten, then every hundredth.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DdpLoggingData {
    /// The number of forward passes prepared.
    pub iteration: u64,
    /// The number of parameters.
    pub num_parameter_tensors: u64,
    /// Their size in bytes, which is what each step exchanges.
    pub total_parameter_size_bytes: u64,
    /// The buckets of the first iteration, in bytes, in the order of exchange.
    pub bucket_sizes: Vec<u64>,
    /// Whether the buckets have been reordered by the arrival of gradients in the first iteration.
    pub has_rebuilt_buckets: bool,
    /// The buckets since then, in bytes.
    pub rebuilt_bucket_sizes: Vec<u64>,
    /// From the start of the forward pass to the start of the backward pass.
    pub avg_forward_compute_time: Duration,
    /// From the start of the backward pass to the last gradient.
    pub avg_backward_compute_time: Duration,
    /// From the first bucket's start to the last bucket's arrival.
    pub avg_backward_comm_time: Duration,
    /// The part of it that overlaps with the computation of gradients, and so costs nothing.
    pub avg_backward_compute_comm_overlap_time: Duration,
    /// The name of the communication hook; empty if none is registered.
    pub comm_hook: String,
    /// Whether a [`join`](crate::distributed::DistributedDataParallel::join) was used.
    pub join_uneven_inputs: bool,
}

impl DdpLoggingData {
    /// How long this rank only waits in a step: its backward pass has finished, but gradients are
    /// still being exchanged. Averaged over the sampled iterations.
    pub fn waiting_time(&self) -> Duration {
        self.avg_backward_comm_time.saturating_sub(self.avg_backward_compute_comm_overlap_time)
    }

    fn read(reducer: &Reducer) -> c10d_sys::Result<Self> {
        let number = |name| reducer.logged_number(name).map(|n| u64::try_from(n).unwrap_or(0));
        let time = |name| number(name).map(Duration::from_nanos);
        let sizes = |name| -> c10d_sys::Result<Vec<u64>> {
            let text = reducer.logged_text(name)?;
            Ok(text.split(", ").filter_map(|size| size.trim().parse().ok()).collect())
        };
        Ok(DdpLoggingData {
            iteration: number("iteration")?,
            num_parameter_tensors: number("num_parameter_tensors")?,
            total_parameter_size_bytes: number("total_parameter_size_bytes")?,
            bucket_sizes: sizes("bucket_sizes")?,
            has_rebuilt_buckets: number("has_rebuilt_buckets")? != 0,
            rebuilt_bucket_sizes: sizes("rebuilt_bucket_sizes")?,
            avg_forward_compute_time: time("avg_forward_compute_time")?,
            avg_backward_compute_time: time("avg_backward_compute_time")?,
            avg_backward_comm_time: time("avg_backward_comm_time")?,
            avg_backward_compute_comm_overlap_time: time("avg_backward_compute_comm_overlap_time")?,
            comm_hook: reducer.logged_text("comm_hook")?,
            join_uneven_inputs: number("join_uneven_inputs")? != 0,
        })
    }
}

impl<M> DistributedDataParallel<M> {
    /// Bucket sizes and overlap times. `model._get_ddp_logging_data()`
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch does not return them.
    pub fn logging_data(&self) -> Result<DdpLoggingData> {
        DdpLoggingData::read(&self.reducer.borrow()).map_err(Error::engine("logging_data"))
    }

    /// The number under any key of PyTorch's logging data, such as "num_buckets_reduced"; 0 if there is none.
    pub fn logged_number(&self, key: &str) -> Result<i64> {
        self.reducer.borrow().logged_number(key).map_err(Error::engine("logged_number"))
    }

    /// The text under such a key, for example "dtypes"; empty if there is none.
    pub fn logged_text(&self, key: &str) -> Result<String> {
        self.reducer.borrow().logged_text(key).map_err(Error::engine("logged_text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_waits_while_gradients_travel_and_nothing_is_computed() {
        let logging = DdpLoggingData {
            avg_backward_comm_time: Duration::from_millis(30),
            avg_backward_compute_comm_overlap_time: Duration::from_millis(25),
            ..Default::default()
        };
        assert_eq!(logging.waiting_time(), Duration::from_millis(5));
    }
}
