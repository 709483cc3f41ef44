//! The loader of an iterable data set.

use super::{DataLoader, DataLoaderOptions, Epoch, Order, serial_queue::SerialQueue};
use crate::{IterableDataset, Result, Samples, Shard, WorkerInfo, check};
use std::sync::{Arc, Mutex, atomic::AtomicBool, atomic::Ordering};
use std::{collections::VecDeque, iter};
use tch_parallel_base::lock;

impl<D: IterableDataset + 'static> DataLoader<D, Shard> {
    /// A loader of an [`IterableDataset`]. Pass this rank's [`Shard`] or a process group.
    ///
    /// Each worker reads its own samples, makes batches of `batch_size` of them, and drops its last
    /// one if it is smaller and `drop_last` is set. The training loop takes a batch from each worker in turn, or without
    /// `in_order` whichever is ready. So unlike with a sampler, the batches depend on the number of workers, as in Python.
    pub fn iterable(
        dataset: D,
        shard: impl Into<Shard>,
        options: DataLoaderOptions,
    ) -> Result<Self> {
        let shard = shard.into();
        let expected = "that of one rank: a stream has no virtual ranks";
        check(shard.parts <= 1, "shard", format_args!("{shard:?}"), expected)?;
        Self::build(dataset, shard, options)
    }

    /// The batches of epoch `epoch`. Workers start at once. A sample's error takes its batch's place.
    pub fn epoch(&self, epoch: u64) -> Result<Epoch<'_, D::Batch>> {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch `epoch` without the first `step`, to resume an interrupted training. The skipped batches
    /// are made and dropped, because only reading finds the place; the first that has an error returns it.
    ///
    /// `step` counts this rank's batches, unlike `consumed` of the map-style `epoch_after`, which counts the samples of
    /// all ranks; so the numbers of ranks and of workers and the batch size must be the same as before.
    pub fn epoch_from(&self, epoch: u64, step: usize) -> Result<Epoch<'_, D::Batch>> {
        self.begin(step)?;
        let num_workers = self.options.num_workers.max(1);
        let streams = (0..num_workers).map(|id| {
            let worker = WorkerInfo::new(self.sampler, Shard::new(id, num_workers)?);
            Ok(Arc::new(Stream {
                dataset: Arc::clone(&self.dataset),
                samples: Mutex::new(self.dataset.samples(worker, epoch)?),
                has_ended: AtomicBool::new(false),
                batch_size: self.options.batch_size,
                drop_last: self.options.drop_last,
                queue: SerialQueue::default(),
            }))
        });
        let streams = in_turn(streams.collect::<Result<_>>()?, self.options.in_order);
        let mut epoch = Epoch::new(streams, self.workers.as_ref(), &self.options);
        epoch.by_ref().take(step).try_for_each(|batch| batch.map(drop))?;
        Ok(epoch)
    }
}

/// The streams of all workers, in turn.
fn in_turn<D: IterableDataset + 'static>(
    mut streams: VecDeque<Arc<Stream<D>>>,
    in_order: bool,
) -> impl Iterator<Item = Order<D::Batch>> + Send {
    iter::from_fn(move || {
        streams.retain(|stream| !stream.has_ended.load(Ordering::Relaxed));
        if !in_order {
            // As a slow stream's orders pile up, nothing would be ordered from the others.
            let count = streams.len();
            let idlest = (0..count).min_by_key(|&stream| streams[stream].queue.len())?;
            streams.rotate_left(idlest);
        }
        let stream = streams.pop_front()?;
        streams.push_back(Arc::clone(&stream));
        let queue = Some(stream.queue.clone());
        // If it ends before its turn, this order is skipped, so the other streams' batches keep their order.
        Some(Order { make: Box::new(move || stream.next_batch()), queue })
    })
}

/// The batches of one worker.
struct Stream<D: IterableDataset> {
    dataset: Arc<D>,
    samples: Mutex<Samples<D::Sample>>,
    has_ended: AtomicBool,
    batch_size: usize,
    drop_last: bool,
    /// A stream's samples are read one after the other.
    queue: SerialQueue,
}

impl<D: IterableDataset> Stream<D> {
    fn next_batch(&self) -> Option<Result<D::Batch>> {
        let mut samples = lock(&self.samples);
        let samples: Result<Vec<_>> = samples.by_ref().take(self.batch_size).collect();
        let least = if self.drop_last { self.batch_size } else { 1 };
        if samples.as_ref().is_ok_and(|samples| samples.len() < least) {
            self.has_ended.store(true, Ordering::Relaxed);
            return None;
        }
        Some(samples.and_then(|samples| self.dataset.collate(samples)))
    }
}

#[cfg(test)]
mod tests;
