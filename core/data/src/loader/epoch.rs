//! The batches of one epoch, in order.

use super::transfer::{moved, pinned};
use super::{DataLoaderOptions, prefetcher::Prefetcher, serial_queue::SerialQueue};
use crate::{Error, Result, Tensors};
use rayon::ThreadPool;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};
use std::{collections::VecDeque, fmt, iter, thread, time::Duration, time::Instant};
use tch::Device;

/// A batch that is yet to be made.
pub(super) struct Order<B> {
    /// Makes the batch, on the thread that calls it; `None` if there turns out to be none.
    pub(super) make: Box<dyn FnOnce() -> Option<Result<B>> + Send>,
    /// For batches that must be made one after the other; otherwise any free worker makes them.
    pub(super) queue: Option<SerialQueue>,
}

/// A batch, or the panic in its place. The inner `None` stands for one that turned out not to exist.
type Made<B> = thread::Result<Option<Result<B>>>;
type Numbered<B> = (usize, Made<B>);

/// The batches of one epoch, see [`DataLoader::epoch`](super::DataLoader::epoch).
///
/// A batch that could not be made is an `Err` in its place, and later batches follow. A panic in a data set continues
/// in the thread that asks for the batch. After this is dropped, no worker uses the data set any more, unless one does not
/// answer within the [timeout](DataLoaderOptions::timeout): nothing waits for a worker that may hang.
pub struct Epoch<'loader, B> {
    /// The batches that no worker has yet.
    orders: Box<dyn Iterator<Item = Order<B>> + Send + 'loader>,
    /// The batches given to workers, in order; `None` while one is being made.
    in_flight: VecDeque<Option<Made<B>>>,
    /// The number of batches taken from workers, which is that of the first in flight.
    taken: usize,
    /// What workers get to send a batch with its number. That this has one too keeps the channel open.
    sender: Sender<Numbered<B>>,
    receiver: Receiver<Numbered<B>>,
    workers: Option<&'loader ThreadPool>,
    options: &'loader DataLoaderOptions,
    has_timed_out: bool,
    /// Where the training loop gets its batches.
    device: Option<Device>,
    /// What copies them to a GPU, from the first batch on.
    prefetcher: Option<Prefetcher<B>>,
    /// Tells workers to skip batches that are no longer wanted.
    abandoned: Arc<AtomicBool>,
}

impl<'loader, B: Tensors + Send + 'static> Epoch<'loader, B> {
    pub(super) fn new(
        orders: impl Iterator<Item = Order<B>> + Send + 'loader,
        workers: Option<&'loader ThreadPool>,
        options: &'loader DataLoaderOptions,
    ) -> Self {
        let (sender, receiver) = channel();
        let mut epoch = Epoch {
            orders: Box::new(orders),
            in_flight: VecDeque::new(),
            taken: 0,
            sender,
            receiver,
            workers,
            options,
            has_timed_out: false,
            device: None,
            prefetcher: None,
            abandoned: Arc::default(),
        };
        epoch.keep_workers_busy();
        epoch
    }

    /// Gives the training loop each batch on `device`: `tensor.to(device, non_blocking=True)`.
    ///
    /// A GPU gets its batches one ahead: while the loop trains on one, the next is copied on a stream of its own, like
    /// `data_prefetcher` in NVIDIA's Apex. From [pinned memory](DataLoaderOptions::pin_memory) the copy and the
    /// training overlap, and the host waits for neither. On the CPU, a worker's batch is copied to the logical device
    /// of the thread that asks for it; without workers, the batches are those of the data set.
    ///
    /// If a batch does not fit there, [`Error::Tensor`](crate::Error::Tensor) takes its place.
    ///
    /// ```
    /// use tch::Device;
    /// use tch_parallel::data::{DataLoader, Mnist, SequentialSampler, Split};
    ///
    /// let device = Device::cuda_if_available();
    /// let loader = DataLoader::new(Mnist::embedded(Split::Test)?, SequentialSampler, 500)?;
    /// for batch in loader.epoch(0)?.to(device) {
    ///     let (images, labels) = batch?;
    ///     assert_eq!((images.device(), labels.device()), (device, device));
    /// }
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[must_use]
    pub fn to(mut self, device: impl Into<Device>) -> Self {
        self.device = Some(device.into());
        self
    }

    /// Assigns batches until as many are in flight as the options allow.
    fn keep_workers_busy(&mut self) {
        let Some(workers) = self.workers else { return };
        let limit = self.options.num_workers.saturating_mul(self.options.prefetch_factor);
        while self.in_flight.len() < limit {
            let Some(Order { make, queue }) = self.orders.next() else { return };
            let number = self.taken + self.in_flight.len();
            let sender = self.sender.clone();
            let abandoned = Arc::clone(&self.abandoned);
            let pin_memory = self.options.pin_memory;
            let job = move || {
                // The receiver may drop the data set next, so `make`, which refers to it, must be gone before the answer.
                let batch = if abandoned.load(Ordering::Relaxed) {
                    drop(make);
                    Ok(None)
                } else {
                    // A panic in a rayon job would abort the whole process.
                    catch_unwind(AssertUnwindSafe(|| pinned(make(), pin_memory)))
                };
                // This fails only if the epoch was dropped; then the batch is not needed.
                let _ = sender.send((number, batch));
            };
            match queue {
                Some(queue) => queue.spawn_fifo(workers, job),
                None => workers.spawn_fifo(job),
            }
            self.in_flight.push_back(None);
        }
    }

    /// The next batch, or the error that it is not ready in time.
    fn made(&mut self) -> Option<Made<B>> {
        if self.workers.is_none() {
            let make = self.orders.next()?.make;
            let pin_memory = self.options.pin_memory;
            return Some(catch_unwind(AssertUnwindSafe(|| pinned(make(), pin_memory))));
        }
        let (start, limit) = (Instant::now(), self.options.timeout.unwrap_or(Duration::MAX));
        while self.in_flight.front()?.is_none() {
            let made = self.receiver.recv_timeout(limit.saturating_sub(start.elapsed()));
            self.has_timed_out = made.is_err();
            let Ok((number, batch)) = made else {
                return Some(Ok(Some(Err(timed_out(self.taken, limit)))));
            };
            let place = if self.options.in_order { number - self.taken } else { 0 };
            self.in_flight[place] = Some(batch);
        }
        let batch = self.in_flight.pop_front()?;
        self.taken += 1;
        self.keep_workers_busy();
        batch
    }

    /// The next batch that exists.
    fn next_made(&mut self) -> Option<thread::Result<Result<B>>> {
        iter::from_fn(|| self.made()).find_map(|batch| batch.transpose())
    }

    /// The next batch on a GPU. That after it is on its way there when this returns.
    fn next_prefetched(&mut self, gpu: usize) -> Option<thread::Result<Result<B>>> {
        let mut prefetcher = match self.prefetcher.take().map_or_else(|| Prefetcher::new(gpu), Ok) {
            Ok(prefetcher) => prefetcher,
            Err(error) => return self.next_made().map(|batch| batch.map(|_| Err(error))),
        };
        // The first batch; the last one was taken if there is none.
        if !prefetcher.has_batch() {
            prefetcher.preload(self.next_made()?);
        }
        let batch = prefetcher.take()?;
        // An error is handed out at once.
        if matches!(batch, Ok(Ok(_)))
            && let Some(following) = self.next_made()
        {
            prefetcher.preload(following);
        }
        self.prefetcher = Some(prefetcher);
        Some(batch)
    }
}

fn timed_out(batch: usize, limit: Duration) -> Error {
    Error::other(format!(
        "DataLoader timed out: batch {batch} of this loop, counted from 0, was not ready within {limit:?}; find out what \
         the data set waits for, or raise timeout"
    ))
}

impl<B: Tensors + Send + 'static> Iterator for Epoch<'_, B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.device {
            None => self.next_made(),
            Some(Device::Cuda(gpu)) => self.next_prefetched(gpu),
            Some(device) => {
                let moved = |batch: Result<B>| batch.and_then(|batch| moved(batch, device));
                self.next_made().map(|batch| batch.map(moved))
            }
        };
        batch.map(|batch| batch.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let is_prefetched = self.prefetcher.as_ref().is_some_and(Prefetcher::has_batch);
        let in_flight = self.in_flight.len() + usize::from(is_prefetched);
        let (least, most) = self.orders.size_hint();
        // Batches that may turn out not to exist have a lower bound of 0.
        let least = if most.is_some() { least + in_flight } else { 0 };
        (least, most.map(|most| most + in_flight))
    }
}

impl<B> Drop for Epoch<'_, B> {
    /// Waits for the batches in progress, at most for the timeout: the program may end next, and libtorch must outlive
    /// the threads that use it.
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        if self.has_timed_out {
            return;
        }
        let (start, limit) = (Instant::now(), self.options.timeout.unwrap_or(Duration::MAX));
        let mut unfinished = self.in_flight.iter().filter(|batch| batch.is_none());
        let made = |_| self.receiver.recv_timeout(limit.saturating_sub(start.elapsed())).map(drop);
        let _ = unfinished.try_for_each(made);
    }
}

impl<B> fmt::Debug for Epoch<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("in_flight", &self.in_flight.len()).finish_non_exhaustive()
    }
}
