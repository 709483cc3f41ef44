//! The next batch on its way to a GPU, while this one trains.

use super::transfer::moved;
use crate::{Error, Result, Tensors, dataset::replace};
use c10d_sys::stream::Stream;
use std::{collections::BTreeMap, sync::Mutex, thread};
use tch::Device;
use tch_parallel_base::lock;

/// Each GPU's stream for batches, the same in all epochs: PyTorch's allocator keeps memory for each stream.
static STREAMS: Mutex<BTreeMap<usize, Stream>> = Mutex::new(BTreeMap::new());

/// Copies batches to a GPU on its own stream: `data_prefetcher` in `examples/imagenet/main_amp.py` of NVIDIA's Apex.
#[derive(Debug)]
pub(super) struct Prefetcher<B> {
    gpu: usize,
    stream: Stream,
    /// Its copy is queued on `stream`. A panic of the data set waits for its turn, like an error.
    next: Option<thread::Result<Result<B>>>,
}

impl<B: Tensors> Prefetcher<B> {
    pub(super) fn new(gpu: usize) -> Result<Self> {
        let mut streams = lock(&STREAMS);
        let new = || Stream::from_pool(gpu).map_err(Error::engine("a stream for batches"));
        let stream = streams.get(&gpu).copied().map_or_else(new, Ok)?;
        streams.insert(gpu, stream);
        Ok(Prefetcher { gpu, stream, next: None })
    }

    pub(super) fn has_batch(&self) -> bool {
        self.next.is_some()
    }

    /// Begins to copy `batch`: `preload` there.
    pub(super) fn preload(&mut self, batch: thread::Result<Result<B>>) {
        let copied = |batch| {
            let _on = self.stream.guard().map_err(Error::engine("copy a batch"))?;
            moved(batch, Device::Cuda(self.gpu))
        };
        self.next = Some(batch.map(|batch| batch.and_then(copied)));
    }

    /// The batch whose copy was begun, for the current stream: `next` there.
    pub(super) fn take(&mut self) -> Option<thread::Result<Result<B>>> {
        let batch = self.next.take()?;
        let handed_over = |batch| self.hand_over(batch).map_err(Error::engine("take a batch"));
        Some(batch.map(|batch| batch.and_then(handed_over)))
    }

    /// The GPU waits for the copy, and the host does not.
    fn hand_over(&self, batch: B) -> Result<B, c10d_sys::Error> {
        let current = Stream::current(self.gpu)?;
        current.wait_stream(self.stream)?;
        // The memory came from the other stream, which must not use it again before this one is done.
        replace(batch, |tensor| current.record(tensor).map(|()| tensor.shallow_clone()))
    }
}
