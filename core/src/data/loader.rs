//! Batches, made ahead of the training loop by worker threads.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{Batch, Dataset, Sampler};
use crate::{Error, Result};

/// How a [`DataLoader`] makes its batches. Names and defaults are those of
/// `torch.utils.data.DataLoader`.
///
/// `shuffle` is missing on purpose: the order is the sampler's business. A loader that shuffled
/// by itself would undo the sharing-out of a [`DistributedSampler`](super::DistributedSampler).
#[derive(Debug, Clone)]
pub struct DataLoaderOptions {
    /// Samples in a batch, counted for this rank alone: with `n` ranks a step sees `n` times as many.
    pub batch_size: usize,
    /// Threads that make batches ahead of the training loop; with 0 the loop makes them itself.
    pub num_workers: usize,
    /// Batches ahead for every worker. More of them even out data sets with some slow samples,
    /// and cost the memory of the batches.
    pub prefetch_factor: usize,
    /// Whether to leave out the last batch if it is smaller than the others.
    pub drop_last: bool,
    /// Whether to put batches in page-locked memory, see [`Batch::pin_memory`]. Needs CUDA.
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

/// Cuts the samples that a sampler chooses into batches, and makes these ahead of time.
/// `torch.utils.data.DataLoader`, with threads in the place of processes.
///
/// The batches come in the sampler's order whatever worker is ready first, so a run does not
/// depend on the number of workers. No thread draws random numbers from libtorch.
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
    /// Shared with the worker threads, which may outlive a call of the loop by a moment.
    dataset: Arc<D>,
    sampler: S,
    options: DataLoaderOptions,
    /// `None` where the training loop makes its batches itself.
    workers: Option<ThreadPool>,
}

impl<D: Dataset + 'static, S: Sampler> DataLoader<D, S> {
    /// A loader without workers. Several loaders can share a data set as an `Arc`.
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
    /// [`Error::Argument`] for a `batch_size` of 0, a `prefetch_factor` of 0 where there are workers,
    /// `pin_memory` without a CUDA device, and more workers than the system gives threads.
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

    /// The data set that the batches are made from.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// How many batches an epoch has on this rank. `len(loader)`
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

    /// The batches of epoch number `epoch`. The workers begin at once.
    ///
    /// # Errors
    /// Those of [`Sampler::indices`]. What goes wrong with a batch comes in its place.
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<'_, D>> {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch number `epoch` without the first `step`, for a training that goes on
    /// where it was interrupted. The samples left out are not read.
    ///
    /// # Errors
    /// As [`epoch`](Self::epoch).
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
/// A batch that could not be made is an `Err` in its place; the next ones follow. A panic in a
/// data set goes on in the thread that asks for the batch. After it is dropped no worker touches
/// the data set any more.
#[derive(Debug)]
pub struct Epoch<'loader, D: Dataset> {
    /// Which epoch it is; data sets that augment their samples ask for it.
    number: u64,
    dataset: &'loader Arc<D>,
    workers: Option<&'loader ThreadPool>,
    options: &'loader DataLoaderOptions,
    /// The indices of the batches that no worker was given yet.
    waiting: VecDeque<Vec<usize>>,
    /// What the workers were given, in the order in which it must come out. Every batch has a
    /// channel of its own, so none needs sorting.
    in_flight: VecDeque<Receiver<thread::Result<Result<D::Batch>>>>,
    /// Tells workers to skip what nobody waits for any more.
    abandoned: Arc<AtomicBool>,
}

impl<D: Dataset + 'static> Epoch<'_, D> {
    /// Hands out batches until as many are in flight as the options allow.
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
                // A panic in a rayon job would end the whole process.
                let batch = catch_unwind(AssertUnwindSafe(|| {
                    make_batch(&*dataset, &indices, number, pin_memory)
                }));
                // Whoever waits for the batch may drop the data set next, and then it must be gone.
                drop(dataset);
                // It fails only if the epoch was dropped, and then nobody needs the batch.
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
        // A worker drops its end of the channel unused only when the epoch is abandoned.
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
    /// Waits for the batches that workers are just making: a program may end right after this,
    /// and libtorch must not be taken down under their feet.
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

/// A pool of its own for every loader: the training loop may use rayon's global one.
fn worker_threads(num_workers: usize) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(num_workers)
        .thread_name(|worker| format!("dataloader-{worker}"))
        .build()
        .map_err(|error| Error::Argument {
            what: "num_workers".into(),
            found: num_workers.to_string(),
            expected: format!("a number of threads that the system grants ({error})"),
        })
}

#[cfg(test)]
mod tests;
