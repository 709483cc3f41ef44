//! Which samples form a batch.

use super::Sampler;
use crate::Result;

/// Selects the batches of an epoch: any `Sampler[list[int]]` that Python's loader takes as `batch_sampler`.
///
/// Implement it where a batch is more than the next few samples: sentences of similar length, or as many classes as
/// possible. See [`DataLoader::with_batch_sampler`](crate::DataLoader::with_batch_sampler). PyTorch's
/// `BatchSampler(sampler, batch_size, drop_last)` is a plain loader of `sampler`.
///
/// With several ranks, each rank's batches must be its own, and all ranks must have equally many. A
/// [`DistributedSamplerWrapper`](crate::DistributedSamplerWrapper) divides the batches of one process.
///
/// ```
/// use tch_parallel::Result;
/// use tch_parallel::data::BatchSampler;
///
/// /// First the long batches.
/// struct Triangle;
///
/// impl BatchSampler for Triangle {
///     fn batches(&self, len: usize, _epoch: u64) -> Result<Vec<Vec<usize>>> {
///         Ok((0..len).map(|first| (first..len).collect()).collect())
///     }
///
///     fn num_batches(&self, len: usize) -> usize {
///         len
///     }
/// }
///
/// assert_eq!(Triangle.batches(3, 0)?, [vec![0, 1, 2], vec![1, 2], vec![2]]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub trait BatchSampler: Send + Sync {
    /// The indices of the batches in epoch `epoch`, for a data set of `len` samples.
    fn batches(&self, len: usize, epoch: u64) -> Result<Vec<Vec<usize>>>;

    /// The batches of epoch `epoch` after the first `consumed` of all ranks: [`Sampler::indices_after`] for batches.
    fn batches_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<Vec<usize>>> {
        Ok(self.batches(len, epoch)?.into_iter().skip(consumed).collect())
    }

    /// The number of batches that [`batches`](Self::batches) returns: the same in every epoch.
    fn num_batches(&self, len: usize) -> usize;
}

/// For a sampler that is chosen at run time.
impl<S: BatchSampler + ?Sized> BatchSampler for Box<S> {
    fn batches(&self, len: usize, epoch: u64) -> Result<Vec<Vec<usize>>> {
        (**self).batches(len, epoch)
    }

    fn batches_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<Vec<usize>>> {
        (**self).batches_after(len, epoch, consumed)
    }

    fn num_batches(&self, len: usize) -> usize {
        (**self).num_batches(len)
    }
}

/// The samples of a sampler, in batches of one size: `torch.utils.data.BatchSampler`.
pub(crate) struct Chunks<S> {
    pub(crate) sampler: S,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
}

impl<S: Sampler> BatchSampler for Chunks<S> {
    fn batches(&self, len: usize, epoch: u64) -> Result<Vec<Vec<usize>>> {
        self.batches_after(len, epoch, 0)
    }

    /// Here `consumed` counts samples: the last batch of an epoch may be smaller.
    fn batches_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<Vec<usize>>> {
        let mut indices = self.sampler.indices_after(len, epoch, consumed)?;
        if self.drop_last {
            indices.truncate(indices.len() / self.batch_size * self.batch_size);
        }
        Ok(indices.chunks(self.batch_size).map(<[usize]>::to_vec).collect())
    }

    fn num_batches(&self, len: usize) -> usize {
        let samples = self.sampler.num_samples(len);
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }
}
