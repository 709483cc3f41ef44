//! Which samples a rank sees in an epoch, and in what order.

use crate::Result;

mod batch;
mod distributed;
mod random;
mod shard;

pub use batch::BatchSampler;
pub(super) use batch::Chunks;
pub use distributed::{DistributedSampler, DistributedSamplerWrapper, Shard};
pub(super) use random::drawn_seed;
pub use random::{RandomSampler, SubsetRandomSampler, WeightedRandomSampler};
pub use shard::ShardSampler;

/// Selects the samples of an epoch, and their order.
///
/// The epoch is an argument, in place of PyTorch's `set_epoch`, which is easily forgotten. The result depends only on
/// arguments and fields, unless a sampler without a seed draws from the global generator. `torch.utils.data.Sampler`
pub trait Sampler: Send + Sync {
    /// The indices of the samples in epoch `epoch`, for a data set of `len` samples.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) if libtorch cannot shuffle that many, and whatever a sampler refuses.
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>>;

    /// The indices of epoch `epoch` after the first `consumed`, counted over all ranks.
    ///
    /// A sampler for a single process leaves out its first `consumed` indices, as this method does by default. One that
    /// divides the samples among ranks divides the rest among those that there are now, see [`DistributedSampler`].
    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        Ok(self.indices(len, epoch)?.into_iter().skip(consumed).collect())
    }

    /// The number of indices that [`indices`](Self::indices) returns: the same in every epoch.
    fn num_samples(&self, len: usize) -> usize;
}

/// For a sampler that is chosen at run time.
impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        (**self).indices(len, epoch)
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        (**self).indices_after(len, epoch, consumed)
    }

    fn num_samples(&self, len: usize) -> usize {
        (**self).num_samples(len)
    }
}

/// All samples in order. `torch.utils.data.SequentialSampler`
#[derive(Debug, Clone, Copy, Default)]
pub struct SequentialSampler;

impl Sampler for SequentialSampler {
    fn indices(&self, len: usize, _epoch: u64) -> Result<Vec<usize>> {
        Ok((0..len).collect())
    }

    fn num_samples(&self, len: usize) -> usize {
        len
    }
}

#[cfg(test)]
pub(super) mod tests;
