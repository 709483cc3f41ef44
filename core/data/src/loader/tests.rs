//! Which batches a loader makes.

mod devices;
mod workers;

use super::*;
use crate::{DistributedSampler, SequentialSampler, Shard, sampler::tests::Batches};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::{sync::Mutex, thread, time::Duration};
use tch::{Device, Tensor};

/// Batches that a function makes from their indices and the epoch.
pub(crate) struct Made<F> {
    pub(crate) len: usize,
    pub(crate) batch: F,
}

impl<F: Fn(&[usize], u64) -> Result<Tensor> + Send + Sync> Dataset for Made<F> {
    type Batch = Tensor;

    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Tensor> {
        (self.batch)(indices, epoch)
    }
}

/// The numbers below `len`, with a hook that runs before each batch is made.
fn numbers_with(
    len: usize,
    hook: impl Fn(&[usize]) -> Result<()> + Send + Sync + 'static,
) -> impl Dataset<Batch = Tensor> + 'static {
    let batch = move |indices: &[usize], _epoch: u64| {
        hook(indices)?;
        let numbers: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        Ok(Tensor::from_slice(&numbers))
    };
    Made { len, batch }
}

fn numbers(len: usize) -> impl Dataset<Batch = Tensor> + 'static {
    numbers_with(len, |_| Ok(()))
}

/// A hook that refuses the batch that begins with sample 2.
fn fails_at_two(indices: &[usize]) -> Result<()> {
    if indices[0] == 2 { Err(Error::argument("two", "bad", "good")) } else { Ok(()) }
}

fn panics_at_two(indices: &[usize]) -> Result<()> {
    assert!(indices[0] != 2, "two is too much");
    Ok(())
}

pub(super) fn workers(batch_size: usize, num_workers: usize) -> DataLoaderOptions {
    DataLoaderOptions { batch_size, num_workers, ..DataLoaderOptions::default() }
}

fn in_order<D: Dataset + 'static>(data: D, batch_size: usize, num_workers: usize) -> DataLoader<D> {
    DataLoader::with_options(data, SequentialSampler, workers(batch_size, num_workers)).unwrap()
}

fn collect<D: Dataset<Batch = Tensor> + 'static>(loader: &DataLoader<D>) -> Vec<Vec<i64>> {
    loader.epoch(0).unwrap().map(|batch| Vec::try_from(batch.unwrap()).unwrap()).collect()
}

/// Runs `test` on a thread of its own, so that one that hangs fails instead.
pub(super) fn in_time<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        let _ = sender.send(test());
    });
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Ok(value) => value,
        Err(RecvTimeoutError::Timeout) => panic!("hangs"),
        Err(RecvTimeoutError::Disconnected) => resume_unwind(thread.join().unwrap_err()),
    }
}

#[test]
fn there_are_pytorchs_numbers_of_batches() {
    for (len, batch_size, world, drop_last, batches, last) in [
        (60_000, 128, 1, false, 469, 96),
        (60_000, 128, 2, false, 235, 48),
        (60_000, 128, 4, false, 118, 24),
        (60_000, 128, 8, false, 59, 76),
        (10_000, 100, 1, false, 100, 100),
        (10_000, 100, 2, false, 50, 100),
        (10_000, 100, 4, false, 25, 100),
        (10, 4, 1, true, 2, 4),
    ] {
        let sampler = DistributedSampler::new(Shard::new(world - 1, world).unwrap(), 42);
        let options = DataLoaderOptions { drop_last, ..workers(batch_size, 0) };
        let loader = DataLoader::with_options(numbers(len), sampler, options).unwrap();
        assert_eq!(loader.len(), batches);
        let sizes: Vec<_> = loader.epoch(0).unwrap().map(|batch| batch.unwrap().numel()).collect();
        assert_eq!(sizes.len(), batches);
        assert!(sizes[..batches - 1].iter().all(|&size| size == batch_size));
        assert_eq!(sizes[batches - 1], last);
    }
}

#[test]
fn an_epoch_goes_on_from_any_step_and_reads_nothing_that_lies_before() {
    for num_workers in [0, 2] {
        let read = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&read);
        let hook = move |indices: &[usize]| {
            seen.lock().unwrap().extend_from_slice(indices);
            Ok(())
        };
        let sampler = DistributedSampler::new(Shard::new(1, 2).unwrap(), 7);
        let (numbers, options) = (numbers_with(101, hook), workers(10, num_workers));
        let loader = DataLoader::with_options(numbers, sampler, options).unwrap();
        let batches = |step: usize| -> Vec<Vec<i64>> {
            let epoch = loader.epoch_after(3, step * 2 * 10).unwrap();
            assert_eq!(epoch.size_hint(), (6 - step, Some(6 - step)));
            epoch.map(|batch| Vec::try_from(batch.unwrap()).unwrap()).collect()
        };
        let whole = batches(0);
        read.lock().unwrap().clear();
        assert_eq!(batches(4), whole[4..]);
        assert_eq!(read.lock().unwrap().len(), whole[4..].concat().len());
        assert!(batches(6).is_empty());
    }
}

#[test]
fn no_samples_make_no_batches() {
    for num_workers in [0, 2] {
        let loader = in_order(numbers(0), 4, num_workers);
        assert!(loader.is_empty());
        assert!(loader.epoch(0).unwrap().next().is_none());
    }
}

#[test]
fn the_data_set_learns_which_epoch_it_is() {
    let batch =
        |indices: &[usize], epoch: u64| Ok(Tensor::from_slice(&vec![epoch as i64; indices.len()]));
    for num_workers in [0, 2] {
        let loader = in_order(Arc::new(Made { len: 4, batch }), 2, num_workers);
        for epoch in [0, 7] {
            for batch in loader.epoch(epoch).unwrap() {
                assert_eq!(batch.unwrap(), Tensor::from_slice(&[epoch as i64; 2]));
            }
        }
    }
}

#[test]
fn options_that_cannot_work_are_refused() {
    let refused = |options| {
        let loader = DataLoader::with_options(numbers(10), SequentialSampler, options);
        loader.err().unwrap().to_string()
    };
    assert_eq!(refused(workers(0, 0)), "batch_size is 0, but must be at least 1");
    let expected = "prefetch_factor is 0, but must be at least 1 with workers";
    assert_eq!(refused(DataLoaderOptions { prefetch_factor: 0, ..workers(1, 1) }), expected);
    let timeout = Some(Duration::from_secs(5));
    let expected = "timeout is 5s, but must be None without workers, because";
    assert!(refused(DataLoaderOptions { timeout, ..workers(1, 0) }).starts_with(expected));
    if !tch::Cuda::is_available() {
        let expected =
            "pin_memory is true, but must be false, because this program sees no CUDA device";
        assert_eq!(refused(DataLoaderOptions { pin_memory: true, ..workers(1, 1) }), expected);
    }
}

#[test]
fn a_batch_sampler_determines_the_batches_alone() {
    let halves = |len: usize| vec![(0..len / 2).collect::<Vec<_>>(), (len / 2..len).collect()];
    let build = |options| DataLoader::with_batch_sampler(numbers(5), Batches(halves), options);
    for num_workers in [0, 2] {
        let loader = build(workers(1, num_workers)).unwrap();
        assert_eq!(loader.len(), 2);
        assert_eq!(collect(&loader), [vec![0, 1], vec![2, 3, 4]]);
    }
    let error = build(workers(2, 0)).unwrap_err().to_string();
    assert!(error.starts_with("batch_size with drop_last is 2 with false"), "{error}");
    assert!(build(DataLoaderOptions { drop_last: true, ..workers(1, 0) }).is_err());
}
