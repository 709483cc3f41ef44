//! Batches, prefetched by worker threads.

use super::{Dataset, Sampler, sampler::BatchSampler, sampler::Chunks, sampler::drawn_seed};
use crate::{Error, Result, check};
use c10d_sys::memory;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{fmt, sync::Arc, time::Duration};
use tch_parallel_base::options;

mod epoch;
mod iterable;
mod prefetcher;
mod serial_queue;
mod transfer;

pub use epoch::Epoch;
use epoch::Order;

options! {
    /// Options of a [`DataLoader`], with `torch.utils.data.DataLoader`'s names and defaults but for `draw_base_seed`.
    ///
    /// There is no `shuffle`: the sampler decides the order, and shuffling here would break the sharding of a
    /// [`DistributedSampler`](super::DistributedSampler).
    #[derive(Debug, Clone)]
    pub struct DataLoaderOptions {
        /// The batch size per rank: with `n` ranks, a step sees `n` times as many samples.
        pub batch_size: usize = 1,
        /// The number of worker threads that prefetch batches; with 0, the training loop makes them itself. For data in
        /// memory one is enough: taking over a batch costs the loop about 10 µs, and making one of 128 digits 80 µs. If
        /// the ranks of a host keep all of its cores busy, 0 is better.
        pub num_workers: usize = 0,
        /// The number of batches that each worker prefetches. More even out slow samples, but take more memory.
        pub prefetch_factor: usize = 2,
        /// Whether to drop the last batch if it is smaller than the others.
        pub drop_last: bool = false,
        /// Whether batches get page-locked memory, for faster copies that do not block ([`Epoch::to`]). Requires CUDA.
        pub pin_memory: bool = false,
        /// How long the training loop waits for a batch. After that it gets an error that names the batch, and may wait
        /// for the same batch again. Leaving an epoch early waits no longer either. Requires workers. PyTorch's default, 0,
        /// is `None` here: no limit.
        pub timeout: Option<Duration> = None,
        /// Whether batches come in the sampler's order. Otherwise they come as soon as they are ready. Runs are then
        /// not reproducible, and an epoch cannot be resumed, because it is unknown which samples were consumed.
        pub in_order: bool = true,
        /// Whether each epoch draws a number from the global generator when it begins, as Python's loader does at every
        /// `iter(loader)`: it seeds Python's workers, and is drawn even without workers. Nothing here needs the number.
        /// But dropout draws from the same generator, so training with dropout equals Python's to the bit only if both
        /// draw it, or neither. To keep Python from it, pass `generator=torch.Generator()` to its loader.
        ///
        /// An epoch resumed after its first step does not draw: the generator's state in the checkpoint was saved after
        /// the draw. Python's `persistent_workers=True` draws in the first epoch only. A [sampler](super::RandomSampler)
        /// without a seed draws after this, in Python and here, so its order equals Python's only if this is set. With two
        /// loaders without workers, take the first batch of one before you begin the other's epoch: Python draws an order
        /// with the first batch.
        pub draw_base_seed: bool = false,
    }
}

/// Divides a sampler's samples into batches and prefetches them. `torch.utils.data.DataLoader`, with worker threads.
///
/// Batches come in the sampler's order, whichever worker finishes first, so a run does not depend on the number of
/// workers, unless [`in_order`](DataLoaderOptions::in_order) is off. No worker draws random numbers from libtorch.
///
/// ```
/// use tch_parallel::data::{DataLoader, Mnist, RandomSampler, Split};
///
/// let loader = DataLoader::new(Mnist::embedded(Split::Train)?, RandomSampler::new(42), 128)?;
/// assert_eq!(loader.len(), 63);
///
/// for batch in loader.epoch(0)?.take(1) {
///     let (images, labels) = batch?;
///     assert_eq!(images.size(), [128, 1, 28, 28]);
///     assert_eq!(labels.size(), [128]);
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// There are three kinds of loaders: of a sampler, of a [`BatchSampler`], and of an
/// [`IterableDataset`](super::IterableDataset), which has a [`Shard`](super::Shard) in place of a sampler.
pub struct DataLoader<D, S = Box<dyn BatchSampler>> {
    /// Shared with the worker threads, which may run a moment longer than the loop.
    dataset: Arc<D>,
    sampler: S,
    options: DataLoaderOptions,
    /// `None` if the training loop makes its batches itself.
    workers: Option<ThreadPool>,
}

impl<D: Dataset + 'static> DataLoader<D> {
    /// A loader without workers. Several loaders can share a data set through an `Arc`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `batch_size` of 0.
    pub fn new(dataset: D, sampler: impl Sampler + 'static, batch_size: usize) -> Result<Self> {
        let options = DataLoaderOptions { batch_size, ..DataLoaderOptions::default() };
        Self::with_options(dataset, sampler, options)
    }

    /// A loader with all its options.
    ///
    /// # Errors
    /// [`Error::Argument`] for a `batch_size` of 0, a `prefetch_factor` of 0 with workers,
    /// `pin_memory` without a CUDA device, a `timeout` without workers, and more workers than the system allows.
    pub fn with_options(
        dataset: D,
        sampler: impl Sampler + 'static,
        options: DataLoaderOptions,
    ) -> Result<Self> {
        let DataLoaderOptions { batch_size, drop_last, .. } = options;
        Self::build(dataset, Box::new(Chunks { sampler, batch_size, drop_last }), options)
    }

    /// A loader whose batches are chosen by `batch_sampler`: `DataLoader(batch_sampler=…)`.
    ///
    /// # Errors
    /// Those of [`with_options`](Self::with_options), and [`Error::Argument`] if `batch_size` or `drop_last` is set.
    pub fn with_batch_sampler(
        dataset: D,
        batch_sampler: impl BatchSampler + 'static,
        options: DataLoaderOptions,
    ) -> Result<Self> {
        let DataLoaderOptions { batch_size, drop_last, .. } = options;
        let found = format_args!("{batch_size} with {drop_last}");
        let expected = "1 with false, because the batch sampler determines the batches";
        check(batch_size == 1 && !drop_last, "batch_size with drop_last", found, expected)?;
        Self::build(dataset, Box::new(batch_sampler), options)
    }

    /// The number of batches per epoch on this rank. `len(loader)`
    pub fn len(&self) -> usize {
        self.sampler.num_batches(self.dataset.len())
    }

    /// Whether an epoch has no batches at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches of epoch `epoch`. Workers start at once. The error of a batch takes its place.
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<'_, D::Batch>> {
        self.epoch_after(epoch, 0)
    }

    /// The batches of epoch `epoch` after the first `consumed` samples, counted over all ranks, to resume an
    /// interrupted training. With a batch sampler, `consumed` counts batches. The batch size and the number of ranks
    /// may be others than before, see [`DistributedSampler`](super::DistributedSampler). Consumed samples are not read.
    pub fn epoch_after(&self, epoch: u64, consumed: usize) -> Result<Epoch<'_, D::Batch>> {
        self.begin(consumed)?;
        let batches = self.sampler.batches_after(self.dataset.len(), epoch, consumed)?;
        let orders = batches.into_iter().map(move |indices| {
            let dataset = Arc::clone(&self.dataset);
            Order { make: Box::new(move || Some(dataset.batch(&indices, epoch))), queue: None }
        });
        Ok(Epoch::new(orders, self.workers.as_ref(), &self.options))
    }
}

impl<D, S> DataLoader<D, S> {
    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Calls `init` with the worker's number in each worker thread, and waits for all of them. Without workers, `init` is
    /// not called. Python calls its `worker_init_fn` in every epoch, because it starts new workers each time.
    ///
    /// Any free worker makes the next batch, so no sample should depend on the number.
    ///
    /// ```
    /// use tch_parallel::data::{DataLoader, DataLoaderOptions, Mnist, SequentialSampler, Split};
    ///
    /// let options = DataLoaderOptions { num_workers: 2, ..Default::default() };
    /// let loader = DataLoader::with_options(Mnist::embedded(Split::Test)?, SequentialSampler, options)?
    ///     .worker_init_fn(|worker| {
    ///         println!("worker {worker} starts");
    ///         Ok(())
    ///     })?;
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error that `init` returns.
    pub fn worker_init_fn(self, init: impl Fn(usize) -> Result<()> + Sync) -> Result<Self> {
        if let Some(workers) = &self.workers {
            let inits = workers.broadcast(|worker| init(worker.index()));
            inits.into_iter().collect::<Result<()>>()?;
        }
        Ok(self)
    }

    fn build(dataset: D, sampler: S, options: DataLoaderOptions) -> Result<Self> {
        check(options.batch_size > 0, "batch_size", "0", "at least 1")?;
        let prefetches = options.prefetch_factor > 0 || options.num_workers == 0;
        check(prefetches, "prefetch_factor", "0", "at least 1 with workers")?;
        let expected = "false, because this program sees no CUDA device";
        check(!options.pin_memory || tch::Cuda::is_available(), "pin_memory", "true", expected)?;
        let can_wait = options.timeout.is_none() || options.num_workers > 0;
        let limit = format_args!("{:?}", options.timeout.unwrap_or_default());
        let expected = "None without workers, because the training loop makes its batches itself";
        check(can_wait, "timeout", limit, expected)?;
        let count = options.num_workers;
        let workers = (count > 0).then(|| worker_threads(count)).transpose()?;
        Ok(Self { dataset: Arc::new(dataset), sampler, options, workers })
    }

    /// What Python does in `iter(loader)`, before anything of the epoch is read.
    fn begin(&self, consumed: usize) -> Result<()> {
        let found = "off for an epoch that goes on after some of its batches";
        let expected = "on: nobody knows which batches those were";
        check(self.options.in_order || consumed == 0, "in_order", found, expected)?;
        if self.options.draw_base_seed && consumed == 0 {
            let _base_seed = drawn_seed()?;
        }
        Ok(())
    }
}

impl<D, S> fmt::Debug for DataLoader<D, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Every loader has its own pool: the training loop may use rayon's global one.
fn worker_threads(num_workers: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(num_workers);
    let pool = pool.thread_name(|worker| format!("dataloader-{worker}"));
    // What workers hold is no device's memory, whatever device trains.
    let pool = pool.start_handler(|_| memory::allocate_on_host()).build();
    pool.map_err(|error| {
        let expected = format!("a number of threads that the system allows ({error})");
        Error::argument("num_workers", num_workers, expected)
    })
}

#[cfg(test)]
pub(super) mod tests;
