//! Batches, prefetched by worker threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{Batch, Dataset, Sampler};
use crate::{Error, Result};

/// Options of a [`DataLoader`]. Names and defaults are those of `torch.utils.data.DataLoader`.
///
/// There is no `shuffle`: the order is up to the sampler. A loader with its own shuffling would
/// break the sharding of a [`DistributedSampler`](super::DistributedSampler).
#[derive(Debug, Clone)]
pub struct DataLoaderOptions {
    /// The batch size per rank: with `n` ranks, a step sees `n` times as many samples.
    pub batch_size: usize,
    /// The number of worker threads that prefetch batches; with 0, the training loop makes them
    /// itself. For data in memory one is enough: taking over a batch costs the loop about 10 µs, and
    /// making one of 128 digits 80 µs. If the ranks of a host keep all of its cores busy, none is
    /// better.
    pub num_workers: usize,
    /// The number of batches that each worker prefetches. More even out slow samples, but take more
    /// memory.
    pub prefetch_factor: usize,
    /// Whether to drop the last batch if it is smaller than the others.
    pub drop_last: bool,
    /// Whether to put batches in page-locked memory, see [`Batch::pin_memory`]. Requires CUDA.
    pub pin_memory: bool,
}

impl Default for DataLoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 1,
            num_workers: 0,
            prefetch_factor: 2,
            drop_last: false,
            pin_memory: false,
        }
    }
}

/// Divides the samples that a sampler selects into batches, and prefetches them.
/// `torch.utils.data.DataLoader`, with threads instead of processes.
///
/// Batches come in the sampler's order, whichever worker finishes first, so a run does not depend
/// on the number of workers. No thread draws random numbers from libtorch.
///
/// ```
/// use tch_parallel::data::{DataLoader, Mnist, RandomSampler, Split};
///
/// let loader = DataLoader::new(Mnist::embedded(Split::Train)?, RandomSampler { seed: 42 }, 128)?;
/// assert_eq!(loader.len(), 63);
///
/// for batch in loader.epoch(0)?.take(1) {
///     let (images, labels) = batch?;
///     assert_eq!(images.size(), [128, 1, 28, 28]);
///     assert_eq!(labels.size(), [128]);
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct DataLoader<D, S> {
    /// Shared with the worker threads, which may run a moment longer than the loop.
    dataset: Arc<D>,
    sampler: S,
    options: DataLoaderOptions,
    /// `None` if the training loop makes its batches itself.
    workers: Option<ThreadPool>,
}

impl<D: Dataset + 'static, S: Sampler> DataLoader<D, S> {
    /// A loader without workers. Several loaders can share a data set through an `Arc`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `batch_size` of 0.
    pub fn new(dataset: D, sampler: S, batch_size: usize) -> Result<Self> {
        Self::with_options(
            dataset,
            sampler,
            DataLoaderOptions { batch_size, ..DataLoaderOptions::default() },
        )
    }

    /// A loader with all its options.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `batch_size` of 0, a `prefetch_factor` of 0 with workers,
    /// `pin_memory` without a CUDA device, and more workers than the system allows.
    pub fn with_options(dataset: D, sampler: S, options: DataLoaderOptions) -> Result<Self> {
        let refuse = |what: &str, found: &str, expected: &str| {
            Err(Error::Argument {
                what: what.into(),
                found: found.into(),
                expected: expected.into(),
            })
        };
        if options.batch_size == 0 {
            return refuse("batch_size", "0", "at least 1");
        }
        if options.prefetch_factor == 0 && options.num_workers > 0 {
            return refuse("prefetch_factor", "0", "at least 1 where there are workers");
        }
        if options.pin_memory && !tch::Cuda::is_available() {
            return refuse("pin_memory", "true", "false, because this program sees no CUDA device");
        }
        let workers = match options.num_workers {
            0 => None,
            n => Some(worker_threads(n)?),
        };
        Ok(Self { dataset: Arc::new(dataset), sampler, options, workers })
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The number of batches per epoch on this rank. `len(loader)`
    pub fn len(&self) -> usize {
        let samples = self.sampler.num_samples(self.dataset.len());
        if self.options.drop_last {
            samples / self.options.batch_size
        } else {
            samples.div_ceil(self.options.batch_size)
        }
    }

    /// Whether an epoch has no batches at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches of epoch `epoch`. Workers start at once.
    ///
    /// # Errors
    /// Those of [`Sampler::indices`]. Errors of a batch are returned in its place.
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<'_, D>> {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch `epoch` without the first `step`, to resume an interrupted training.
    /// The skipped samples are not read.
    ///
    /// # Errors
    /// Those of [`epoch`](Self::epoch).
    pub fn epoch_from(&self, epoch: u64, step: usize) -> Result<Epoch<'_, D>> {
        let DataLoaderOptions { batch_size, drop_last, .. } = self.options;
        let mut indices = self.sampler.indices(self.dataset.len(), epoch)?;
        if drop_last {
            indices.truncate(indices.len() / batch_size * batch_size);
        }
        let batches = indices.chunks(batch_size).skip(step);
        let batches: VecDeque<_> = batches.map(<[usize]>::to_vec).collect();

        let mut epoch = Epoch {
            number: epoch,
            dataset: &self.dataset,
            workers: self.workers.as_ref(),
            options: &self.options,
            waiting: batches,
            in_flight: VecDeque::new(),
            abandoned: Arc::default(),
        };
        epoch.keep_workers_busy();
        Ok(epoch)
    }
}

/// The batches of one epoch, see [`DataLoader::epoch`].
///
/// A batch that could not be made is an `Err` in its place, and later batches follow. A panic in a
/// data set continues in the thread that asks for the batch. After this is dropped, no worker uses
/// the data set any more.
#[derive(Debug)]
pub struct Epoch<'loader, D: Dataset> {
    /// The number of the epoch, for data sets that augment their samples.
    number: u64,
    dataset: &'loader Arc<D>,
    workers: Option<&'loader ThreadPool>,
    options: &'loader DataLoaderOptions,
    /// The indices of the batches that no worker has yet.
    waiting: VecDeque<Vec<usize>>,
    /// The batches given to workers, in order. Each has its own channel, so none needs sorting.
    in_flight: VecDeque<Receiver<thread::Result<Result<D::Batch>>>>,
    /// Tells workers to skip batches that are no longer wanted.
    abandoned: Arc<AtomicBool>,
}

impl<D: Dataset + 'static> Epoch<'_, D> {
    /// Assigns batches until as many are in flight as the options allow.
    fn keep_workers_busy(&mut self) {
        let Some(workers) = self.workers else { return };
        let DataLoaderOptions { num_workers, prefetch_factor, pin_memory, .. } = *self.options;
        while self.in_flight.len() < num_workers.saturating_mul(prefetch_factor) {
            let Some(indices) = self.waiting.pop_front() else { return };
            let (sender, receiver) = sync_channel(1);
            let dataset = Arc::clone(self.dataset);
            let number = self.number;
            let abandoned = Arc::clone(&self.abandoned);
            workers.spawn_fifo(move || {
                if abandoned.load(Ordering::Relaxed) {
                    return;
                }
                // A panic in a rayon job would abort the whole process.
                let batch = catch_unwind(AssertUnwindSafe(|| {
                    make_batch(&*dataset, &indices, number, pin_memory)
                }));
                // The receiver may drop the data set next, so this reference must be gone first.
                drop(dataset);
                // This fails only if the epoch was dropped; then the batch is not needed.
                let _ = sender.send(batch);
            });
            self.in_flight.push_back(receiver);
        }
    }
}

impl<D: Dataset + 'static> Iterator for Epoch<'_, D> {
    type Item = Result<D::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.workers.is_none() {
            let indices = self.waiting.pop_front()?;
            return Some(make_batch(
                &**self.dataset,
                &indices,
                self.number,
                self.options.pin_memory,
            ));
        }
        // A worker drops its sender unused only if the epoch is abandoned.
        let batch = self.in_flight.pop_front()?.recv().ok()?;
        self.keep_workers_busy();
        Some(batch.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.in_flight.len() + self.waiting.len();
        (left, Some(left))
    }
}

impl<D: Dataset + 'static> ExactSizeIterator for Epoch<'_, D> {}

impl<D: Dataset> Drop for Epoch<'_, D> {
    /// Waits for the batches in progress: the program may end right after this, and libtorch must
    /// not be unloaded under running threads.
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        for batch in self.in_flight.drain(..) {
            let _ = batch.recv();
        }
    }
}

fn make_batch<D: Dataset>(
    dataset: &D,
    indices: &[usize],
    epoch: u64,
    pin_memory: bool,
) -> Result<D::Batch> {
    let batch = dataset.batch(indices, epoch)?;
    if pin_memory { batch.pin_memory() } else { Ok(batch) }
}

/// Every loader has its own pool: the training loop may use rayon's global one.
fn worker_threads(num_workers: usize) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(num_workers)
        .thread_name(|worker| format!("dataloader-{worker}"))
        .build()
        .map_err(|error| Error::Argument {
            what: "num_workers".into(),
            found: num_workers.to_string(),
            expected: format!("a number of threads that the system allows ({error})"),
        })
}

#[cfg(test)]
mod tests;
