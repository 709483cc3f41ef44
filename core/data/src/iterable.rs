//! Data sets that are read from beginning to end.

use super::Shard;
use crate::{Error, Result, Tensors};
use std::{fmt, iter};

/// Samples that can only be read in order, such as lines of a file. `torch.utils.data.IterableDataset`
///
/// There is no sampler, so the data set itself divides its samples among the ranks, and among the workers of each rank.
/// In PyTorch, it must ask `get_worker_info()` and `get_rank()` for that; if it forgets to, every sample is seen
/// several times. Here, a [`WorkerInfo`] is an argument, and only it makes [`Samples`].
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::Result;
/// use tch_parallel::data::{DataLoader, IterableDataset, Samples, Shard, WorkerInfo};
///
/// struct Countdown(i64);
///
/// impl IterableDataset for Countdown {
///     type Sample = i64;
///     type Batch = Tensor;
///
///     fn samples(&self, worker: WorkerInfo, _epoch: u64) -> Result<Samples<i64>> {
///         Ok(worker.share_out((0..self.0).rev().map(Ok)))
///     }
///
///     fn collate(&self, samples: Vec<i64>) -> Result<Tensor> {
///         Ok(Tensor::from_slice(&samples))
///     }
/// }
///
/// let options = || tch_parallel::data::DataLoaderOptions { batch_size: 2, ..Default::default() };
/// for (rank, expected) in [[9i64, 7], [8, 6]].iter().enumerate() {
///     let loader = DataLoader::iterable(Countdown(10), Shard::new(rank, 2)?, options())?;
///     for batch in loader.epoch(0)?.take(1) {
///         assert_eq!(batch?, Tensor::from_slice(expected));
///     }
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[doc(alias = "get_worker_info")]
pub trait IterableDataset: Send + Sync {
    /// What is read before it becomes part of a batch.
    type Sample;

    /// The input of a training step.
    type Batch: Tensors + Send + 'static;

    /// A worker's samples in epoch `epoch`, made by [`WorkerInfo::share_out`] or [`WorkerInfo::own_part`]. `__iter__`
    ///
    /// One worker thread at a time reads them, not always the same; the training loop calls this as an epoch begins.
    ///
    /// # Errors
    /// Whatever prevents reading.
    fn samples(&self, worker: WorkerInfo, epoch: u64) -> Result<Samples<Self::Sample>>;

    /// Puts samples, at least one, into a batch. `collate_fn`
    ///
    /// Several worker threads call it at the same time. Expensive work, such as decoding, is best done here.
    ///
    /// # Errors
    /// Whatever prevents the batch; the training loop gets the error in place of the batch.
    fn collate(&self, samples: Vec<Self::Sample>) -> Result<Self::Batch>;
}

/// Iterable data sets one after the other, as one: `torch.utils.data.ChainDataset`. The first one's
/// [`collate`](IterableDataset::collate) makes the batches. All are opened when an epoch begins, and each divides its
/// own samples, of which [`share_out`](WorkerInfo::share_out) leaves out the last few.
///
/// ```
/// # use tch::Tensor;
/// # use tch_parallel::Result;
/// # use tch_parallel::data::{IterableDataset, Samples, WorkerInfo};
/// use tch_parallel::data::{ChainDataset, DataLoader, DataLoaderOptions, Shard};
///
/// # #[derive(Clone)]
/// # struct Numbers(std::ops::Range<i64>);
/// # impl IterableDataset for Numbers {
/// #     type Sample = i64;
/// #     type Batch = Tensor;
/// #     fn samples(&self, worker: WorkerInfo, _: u64) -> Result<Samples<i64>> {
/// #         Ok(worker.share_out(self.0.clone().map(Ok)))
/// #     }
/// #     fn collate(&self, samples: Vec<i64>) -> Result<Tensor> {
/// #         Ok(Tensor::from_slice(&samples))
/// #     }
/// # }
/// let chain = ChainDataset(vec![Numbers(0..3), Numbers(7..9)]);
/// let options = DataLoaderOptions { batch_size: 4, ..Default::default() };
/// let loader = DataLoader::iterable(chain.clone(), Shard::new(0, 1)?, options.clone())?;
/// let batches = loader.epoch(0)?.collect::<Result<Vec<_>>>()?;
/// assert_eq!(batches, [Tensor::from_slice(&[0i64, 1, 2, 7]), Tensor::from_slice(&[8i64])]);
/// // Each data set divides its own samples among the ranks.
/// let second_of_two = DataLoader::iterable(chain, Shard::new(1, 2)?, options)?;
/// assert_eq!(second_of_two.epoch(0)?.collect::<Result<Vec<_>>>()?, [Tensor::from_slice(&[1i64, 8])]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChainDataset<D>(
    /// The data sets.
    pub Vec<D>,
);

impl<D: IterableDataset> IterableDataset for ChainDataset<D>
where
    D::Sample: 'static,
{
    type Sample = D::Sample;
    type Batch = D::Batch;

    fn samples(&self, worker: WorkerInfo, epoch: u64) -> Result<Samples<D::Sample>> {
        let samples = self.0.iter().map(|dataset| dataset.samples(worker, epoch));
        Ok(worker.own_part(samples.collect::<Result<Vec<_>>>()?.into_iter().flatten()))
    }

    fn collate(&self, samples: Vec<D::Sample>) -> Result<D::Batch> {
        let first = self.0.first();
        first
            .ok_or_else(|| Error::argument("the chain", "empty", "made of data sets"))?
            .collate(samples)
    }
}

/// A worker of the loader on one of the ranks. `torch.utils.data.get_worker_info()`, with the rank.
///
/// Without worker threads, the training loop is worker 0 of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerInfo {
    rank: Shard,
    worker: Shard,
}

impl WorkerInfo {
    /// A worker of the rank `rank`, to test a data set with.
    pub fn new(rank: Shard, worker: Shard) -> Self {
        Self { rank, worker }
    }

    /// The rank.
    pub fn rank(self) -> usize {
        self.rank.rank
    }

    /// The number of ranks.
    pub fn world_size(self) -> usize {
        self.rank.num_replicas
    }

    /// The worker's number on its rank, from 0.
    pub fn id(self) -> usize {
        self.worker.rank
    }

    /// The number of workers of each rank.
    pub fn num_workers(self) -> usize {
        self.worker.num_replicas
    }

    /// This worker's place among the workers of all ranks: to divide a list of files, for example.
    pub fn shard(self) -> Shard {
        let rank = self.rank() * self.num_workers() + self.id();
        Shard { rank, num_replicas: self.world_size() * self.num_workers(), parts: 1 }
    }

    /// Divides a sequence that every worker of every rank reads from beginning to end.
    ///
    /// With `n` ranks, rank `r` has the samples `r`, `r + n`, `r + 2n` … and deals them out to its workers one by one.
    /// The last few, too few for all ranks, are left out: all have equally many batches. An error goes to every rank.
    pub fn share_out<T: 'static, I>(self, all: I) -> Samples<T>
    where
        I: IntoIterator<Item = Result<T>, IntoIter: Send + 'static>,
    {
        let mut all = all.into_iter();
        let of_rank = iter::from_fn(move || {
            let mut own = None;
            for rank in 0..self.world_size() {
                match all.next()? {
                    Ok(sample) if rank == self.rank() => own = Some(Ok(sample)),
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            own
        });
        self.own_part(of_rank.skip(self.id()).step_by(self.num_workers()))
    }

    /// Samples that no other worker of any rank has: the lines of its own files, for example.
    ///
    /// If the ranks have different numbers of batches, train inside `join`, or those with more wait for the others.
    pub fn own_part<T, I>(self, part: I) -> Samples<T>
    where
        I: IntoIterator<Item = Result<T>, IntoIter: Send + 'static>,
    {
        Samples(Box::new(part.into_iter().fuse()))
    }
}

/// The samples of one worker, which only [`WorkerInfo`] makes.
pub struct Samples<T>(Box<dyn Iterator<Item = Result<T>> + Send>);

impl<T> Iterator for Samples<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.0.next()
    }
}

impl<T> fmt::Debug for Samples<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").finish_non_exhaustive()
    }
}
