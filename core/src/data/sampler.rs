//! Which samples a rank sees in an epoch, and in what order.

use crate::{Error, Result};

/// Selects the samples of an epoch, and their order.
///
/// The epoch is an argument. PyTorch has a method `set_epoch` instead, and if you forget to call
/// it, every epoch has the same order. The result depends only on the arguments and the sampler's
/// own fields, never on earlier calls. `torch.utils.data.Sampler`
pub trait Sampler: Send + Sync {
    /// The indices of the samples in epoch `epoch`, for a data set of `len` samples.
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch cannot shuffle that many.
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>>;

    /// The number of indices that [`indices`](Self::indices) returns: the same in every epoch.
    fn num_samples(&self, len: usize) -> usize;
}

/// For a sampler that is chosen at run time.
impl<S: Sampler + ?Sized> Sampler for Box<S> {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        (**self).indices(len, epoch)
    }

    fn num_samples(&self, len: usize) -> usize {
        (**self).num_samples(len)
    }
}

/// A rank's part of a data set: every `num_replicas`-th sample, starting with number `rank`. The
/// arguments `rank` and `num_replicas` of PyTorch's `DistributedSampler`; a
/// [`ProcessGroup`](crate::distributed::ProcessGroup) converts to its rank's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub(crate) rank: usize,
    pub(crate) num_replicas: usize,
}

impl Shard {
    /// The whole data set, for a single process.
    pub const WHOLE: Shard = Shard { rank: 0, num_replicas: 1 };

    /// The part of rank `rank` of `num_replicas`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that does not exist, or no ranks at all.
    pub fn new(rank: usize, num_replicas: usize) -> Result<Self> {
        if num_replicas == 0 {
            return Err(Error::Argument {
                what: "num_replicas".into(),
                found: "0".into(),
                expected: "the number of ranks, at least 1".into(),
            });
        }
        if rank >= num_replicas {
            return Err(Error::Argument {
                what: "rank".into(),
                found: rank.to_string(),
                expected: format!("less than num_replicas, which is {num_replicas}"),
            });
        }
        Ok(Self { rank, num_replicas })
    }

    /// The number of this part, from 0.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// The number of parts.
    pub fn num_replicas(self) -> usize {
        self.num_replicas
    }
}

/// Divides a data set among ranks: `torch.utils.data.distributed.DistributedSampler`, with the same
/// indices.
///
/// All ranks shuffle the whole data set in the same way, then each takes its [`Shard`]. So shards
/// never overlap, and nothing else may shuffle again. If the number of samples is not a multiple of
/// the number of ranks, the first few are repeated, so that all ranks make the same number of
/// steps:
///
/// ```
/// use tch_parallel::data::{DistributedSampler, Sampler, Shard};
///
/// for (rank, expected) in [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]].iter().enumerate() {
///     let shard = Shard::new(rank, 3)?;
///     let sampler = DistributedSampler { shuffle: false, ..DistributedSampler::new(shard, 0) };
///     assert_eq!(sampler.indices(10, 0)?, expected);
/// }
///
/// let sampler = DistributedSampler::new(Shard::new(0, 2)?, 0);
/// assert_eq!(sampler.indices(10, 0)?, [4, 7, 3, 0, 6]);
/// assert_eq!(sampler.indices(10, 1)?, [5, 1, 0, 9, 7]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// The repeated samples bias the mean over a test set slightly: with five ranks, the numbers 0 to
/// 23 have mean 11.04 instead of 11.5. With `drop_last`, a few samples are dropped instead.
// ANCHOR: fields
#[derive(Debug, Clone, Copy)]
#[doc(alias = "set_epoch")]
pub struct DistributedSampler {
    /// This rank's part of the data set.
    pub shard: Shard,
    /// Whether to shuffle in every epoch; otherwise the samples come in order.
    pub shuffle: bool,
    /// Together with the epoch, it determines the order, so it must be the same on all ranks.
    pub seed: u64,
    /// Whether to drop the last few samples instead of repeating the first few.
    pub drop_last: bool,
}
// ANCHOR_END: fields

impl DistributedSampler {
    /// A sampler that shuffles and drops no sample. Pass a [`Shard`] or a process group.
    pub fn new(shard: impl Into<Shard>, seed: u64) -> Self {
        Self { shard: shard.into(), shuffle: true, seed, drop_last: false }
    }
}

// ANCHOR: indices
impl Sampler for DistributedSampler {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        let order =
            if self.shuffle { shuffled(len, self.seed, epoch)? } else { (0..len).collect() };
        let Shard { rank, num_replicas } = self.shard;
        let total = self.num_samples(len) * num_replicas;
        // `cycle` repeats the first samples until every rank has the same number.
        Ok(order.into_iter().cycle().take(total).skip(rank).step_by(num_replicas).collect())
    }

    fn num_samples(&self, len: usize) -> usize {
        if self.drop_last {
            len / self.shard.num_replicas
        } else {
            len.div_ceil(self.shard.num_replicas)
        }
    }
}
// ANCHOR_END: indices

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

/// All samples, in a new order every epoch: the order of a [`DistributedSampler`] of
/// [`Shard::WHOLE`] with the same seed. `torch.utils.data.RandomSampler` seeds its epochs from the
/// global generator instead.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomSampler {
    /// Together with the epoch, it determines the order.
    pub seed: u64,
}

impl Sampler for RandomSampler {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        shuffled(len, self.seed, epoch)
    }

    fn num_samples(&self, len: usize) -> usize {
        len
    }
}

/// PyTorch's `torch.randperm(len, generator=…)` with its own generator, seeded with `seed + epoch`.
/// The global generator, which dropout uses, is unaffected.
fn shuffled(len: usize, seed: u64, epoch: u64) -> Result<Vec<usize>> {
    let order = c10d_sys::randperm(len, seed.wrapping_add(epoch))
        .map_err(|error| Error::Tensor { operation: "randperm", message: error.to_string() })?;
    Ok(order.into_iter().map(|index| index as usize).collect())
}

#[cfg(test)]
mod tests;
