//! Division among ranks.

use super::{BatchSampler, RandomSampler, Sampler};
use crate::{Result, check};

/// A rank's part of a data set: every `num_replicas`-th sample, starting with number `rank`. The arguments `rank` and
/// `num_replicas` of PyTorch's `DistributedSampler`; a `ProcessGroup` converts to its rank's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub(crate) rank: usize,
    pub(crate) num_replicas: usize,
    /// How many parts this is, from number `rank` on.
    pub(crate) parts: usize,
}

impl Shard {
    /// The whole data set, for a single process.
    pub const WHOLE: Shard = Shard { rank: 0, num_replicas: 1, parts: 1 };

    /// The part of rank `rank` of `num_replicas`.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a rank that does not exist, or no ranks at all.
    pub fn new(rank: usize, num_replicas: usize) -> Result<Self> {
        check(num_replicas > 0, "num_replicas", "0", "the number of ranks, at least 1")?;
        let expected = format_args!("less than num_replicas, which is {num_replicas}");
        check(rank < num_replicas, "rank", rank, expected)?;
        Ok(Self { rank, num_replicas, parts: 1 })
    }

    /// This rank's parts if the data set is divided among `virtual_ranks`, some of them for each rank. Its batches have
    /// the first sample of each part, then the second. With `None`, its one part. PyTorch has no counterpart.
    ///
    /// ```
    /// use tch_parallel::data::{DistributedSampler, Sampler, Shard};
    ///
    /// // Rank 0 of two has the virtual ranks 0 and 1 of four.
    /// let shard = Shard::new(0, 2)?.with_virtual_ranks(4)?;
    /// let sampler = DistributedSampler { shuffle: false, ..DistributedSampler::new(shard, 0) };
    /// assert_eq!(sampler.indices(12, 0)?, [0, 1, 4, 5, 8, 9]);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for fewer virtual ranks than ranks, and for parts of virtual ranks.
    pub fn with_virtual_ranks(self, virtual_ranks: impl Into<Option<usize>>) -> Result<Self> {
        let Shard { rank, num_replicas, .. } = self;
        let Some(virtual_ranks) = virtual_ranks.into() else { return Ok(self) };
        check(self.parts == 1, "the shard", "one of virtual ranks", "that of a rank")?;
        let expected = format_args!("at least the number of ranks, which is {num_replicas}");
        check(virtual_ranks >= num_replicas, "virtual_ranks", virtual_ranks, expected)?;
        let begin = |rank: usize| rank * virtual_ranks / num_replicas;
        let parts = begin(rank + 1) - begin(rank);
        Ok(Self { rank: begin(rank), num_replicas: virtual_ranks, parts })
    }

    /// The number of this part, from 0, or of the first of several.
    pub fn rank(self) -> usize {
        self.rank
    }

    /// How many parts this is: 1, but for [virtual ranks](Self::with_virtual_ranks).
    pub fn parts(self) -> usize {
        self.parts
    }

    /// The number of parts.
    pub fn num_replicas(self) -> usize {
        self.num_replicas
    }
}

/// Divides a data set among ranks: `torch.utils.data.distributed.DistributedSampler`, with the same indices.
///
/// All ranks shuffle the whole data set in the same way, then each takes its [`Shard`]. So shards never overlap, and
/// nothing else may shuffle again. If the number of samples is not a multiple of the number of ranks, the first few are
/// repeated, so that all ranks make the same number of steps:
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
///
/// An epoch can go on with another number of ranks, on which the order of the samples does not depend. After any step,
/// its first part is consumed, so the rest is divided anew, and all are still seen once. PyTorch has no counterpart:
///
/// ```
/// # use tch_parallel::data::{DistributedSampler, Sampler, Shard};
/// // Three ranks have taken two steps with one sample each.
/// for (rank, expected) in [[6, 8], [7, 9]].iter().enumerate() {
///     let shard = Shard::new(rank, 2)?;
///     let sampler = DistributedSampler { shuffle: false, ..DistributedSampler::new(shard, 0) };
///     assert_eq!(sampler.indices_after(10, 0, 6)?, expected);
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
// ANCHOR: fields
#[derive(Debug, Clone, Copy)]
#[doc(alias = "set_epoch")]
pub struct DistributedSampler {
    /// This rank's part of the data set.
    pub shard: Shard,
    /// Whether to shuffle in every epoch; otherwise the samples come in order.
    pub shuffle: bool,
    /// Together with the epoch, it determines the order, so it must be the same on all ranks. The
    /// global generator, which each rank may have seeded differently, never does, as in PyTorch.
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
        self.indices_after(len, epoch, 0)
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        let order = if self.shuffle {
            RandomSampler::new(self.seed).indices(len, epoch)?
        } else {
            (0..len).collect()
        };
        Ok(self.shard.of(order, consumed, self.drop_last))
    }

    fn num_samples(&self, len: usize) -> usize {
        self.shard.len_of(len, self.drop_last)
    }
}

impl Shard {
    fn of<T: Clone>(self, order: Vec<T>, consumed: usize, drop_last: bool) -> Vec<T> {
        let Shard { num_replicas, parts, .. } = self;
        let left = order.len().saturating_sub(consumed);
        let total = self.len_of(left, drop_last) / parts * num_replicas;
        // `cycle` repeats the first samples until every rank has the same number.
        let rest = order.into_iter().cycle().skip(consumed).take(total).enumerate();
        rest.filter(|(at, _)| self.has(*at)).map(|(_, sample)| sample).collect()
    }

    /// Whether the sample at this place of the order is in one of its parts.
    pub(super) fn has(self, place: usize) -> bool {
        (self.rank..self.rank + self.parts).contains(&(place % self.num_replicas))
    }

    fn len_of(self, len: usize, drop_last: bool) -> usize {
        let of_a_part =
            if drop_last { len / self.num_replicas } else { len.div_ceil(self.num_replicas) };
        of_a_part * self.parts
    }
}
// ANCHOR_END: indices

/// Divides among ranks what any sampler selects, for samplers that know nothing of ranks: a
/// [`WeightedRandomSampler`](super::WeightedRandomSampler), say, or a [`BatchSampler`]. PyTorch has no
/// counterpart; catalyst's class of this name, with `shuffle=False`, selects the same indices.
///
/// The sampler must select the same sequence on all ranks, so its seed must be the same, or without a seed, the state of
/// the global generator. Each rank takes its [`Shard`] of the sequence. Without this wrapper, every rank would do the
/// same work. As with a [`DistributedSampler`], the first few are repeated if the sequence cannot be divided evenly, or
/// the last few dropped with `drop_last`.
///
/// ```
/// use tch_parallel::data::{DistributedSamplerWrapper, Sampler, Shard, WeightedRandomSampler};
///
/// let sampler = WeightedRandomSampler::new([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 6, 42);
/// let all = sampler.indices(6, 0)?;
/// let rank_1 = DistributedSamplerWrapper::new(sampler, Shard::new(1, 2)?);
/// assert_eq!(rank_1.indices(6, 0)?, [all[1], all[3], all[5]]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct DistributedSamplerWrapper<S> {
    /// Selects what all ranks see together.
    pub sampler: S,
    /// This rank's part of it.
    pub shard: Shard,
    /// Whether to drop the last few indices, or batches, instead of repeating the first few.
    pub drop_last: bool,
}

impl<S> DistributedSamplerWrapper<S> {
    /// This rank's part of what `sampler` selects, with nothing dropped. Pass a [`Shard`] or a process group.
    pub fn new(sampler: S, shard: impl Into<Shard>) -> Self {
        Self { sampler, shard: shard.into(), drop_last: false }
    }
}

impl<S: Sampler> Sampler for DistributedSamplerWrapper<S> {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        self.indices_after(len, epoch, 0)
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        if consumed > 0 {
            // Fails for a sampler without a seed.
            self.sampler.indices_after(len, epoch, consumed)?;
        }
        Ok(self.shard.of(self.sampler.indices(len, epoch)?, consumed, self.drop_last))
    }

    fn num_samples(&self, len: usize) -> usize {
        self.shard.len_of(self.sampler.num_samples(len), self.drop_last)
    }
}

impl<S: BatchSampler> BatchSampler for DistributedSamplerWrapper<S> {
    fn batches(&self, len: usize, epoch: u64) -> Result<Vec<Vec<usize>>> {
        self.batches_after(len, epoch, 0)
    }

    fn batches_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<Vec<usize>>> {
        let found = "that of several virtual ranks, whose samples would not lie in one batch";
        check(self.shard.parts <= 1, "the shard of batches", found, "that of one rank")?;
        if consumed > 0 {
            self.sampler.batches_after(len, epoch, consumed)?;
        }
        Ok(self.shard.of(self.sampler.batches(len, epoch)?, consumed, self.drop_last))
    }

    fn num_batches(&self, len: usize) -> usize {
        self.shard.len_of(self.sampler.num_batches(len), self.drop_last)
    }
}
