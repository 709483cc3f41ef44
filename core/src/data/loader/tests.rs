use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;
use tch::Tensor;

use super::*;
use crate::data::{DistributedSampler, SequentialSampler, Shard};

/// The numbers below `len`, with a hook that runs before each batch is made.
struct Numbers<F> {
    len: usize,
    hook: F,
}

impl<F: Fn(&[usize]) -> Result<()> + Send + Sync> Dataset for Numbers<F> {
    type Batch = Tensor;

    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Tensor> {
        (self.hook)(indices)?;
        let numbers: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        Ok(Tensor::from_slice(&numbers))
    }
}

fn numbers(len: usize) -> impl Dataset<Batch = Tensor> + 'static {
    Numbers { len, hook: |_: &[usize]| Ok(()) }
}

fn failure(what: &str) -> Error {
    Error::argument(what, "bad", "good")
}

fn workers(batch_size: usize, num_workers: usize) -> DataLoaderOptions {
    DataLoaderOptions { batch_size, num_workers, ..DataLoaderOptions::default() }
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
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            resume_unwind(thread.join().unwrap_err())
        }
    }
}

#[test]
fn mnist_has_pytorchs_number_of_batches() {
    for (world, batches, last) in [(1, 469, 96), (2, 235, 48), (4, 118, 24), (8, 59, 76)] {
        let sampler = DistributedSampler::new(Shard::new(world - 1, world).unwrap(), 42);
        let loader = DataLoader::new(numbers(60_000), sampler, 128).unwrap();
        assert_eq!(loader.len(), batches);
        let sizes: Vec<_> = loader.epoch(0).unwrap().map(|batch| batch.unwrap().numel()).collect();
        assert_eq!(sizes.len(), batches);
        assert!(sizes[..batches - 1].iter().all(|&size| size == 128));
        assert_eq!(sizes[batches - 1], last);
    }
}

#[test]
fn ten_thousand_samples_in_hundreds_are_shared_out_evenly() {
    for (world, batches) in [(1, 100), (2, 50), (4, 25)] {
        let sampler = DistributedSampler::new(Shard::new(0, world).unwrap(), 42);
        assert_eq!(DataLoader::new(numbers(10_000), sampler, 100).unwrap().len(), batches);
    }
}

#[test]
fn the_last_small_batch_can_be_left_out() {
    let options = DataLoaderOptions { drop_last: true, ..workers(4, 0) };
    let loader = DataLoader::with_options(numbers(10), SequentialSampler, options).unwrap();
    assert_eq!(loader.len(), 2);
    assert_eq!(collect(&loader), [[0, 1, 2, 3], [4, 5, 6, 7]]);
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
        let options = workers(10, num_workers);
        let loader =
            DataLoader::with_options(Numbers { len: 101, hook }, sampler, options).unwrap();
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
        let loader =
            DataLoader::with_options(numbers(0), SequentialSampler, workers(4, num_workers))
                .unwrap();
        assert!(loader.is_empty());
        assert!(loader.epoch(0).unwrap().next().is_none());
    }
}

#[test]
fn the_number_of_workers_does_not_change_the_batches() {
    let sampler = DistributedSampler::new(Shard::new(1, 2).unwrap(), 7);
    let alone = collect(&DataLoader::new(numbers(1001), sampler, 10).unwrap());
    for num_workers in [1, 2, 5] {
        let loader =
            DataLoader::with_options(numbers(1001), sampler, workers(10, num_workers)).unwrap();
        assert_eq!(collect(&loader), alone);
    }
}

#[test]
fn the_data_set_learns_which_epoch_it_is() {
    struct EpochNumbers;

    impl Dataset for EpochNumbers {
        type Batch = Tensor;

        fn len(&self) -> usize {
            4
        }

        fn batch(&self, indices: &[usize], epoch: u64) -> Result<Tensor> {
            Ok(Tensor::from_slice(&vec![epoch as i64; indices.len()]))
        }
    }

    for num_workers in [0, 2] {
        let loader = DataLoader::with_options(
            Arc::new(EpochNumbers),
            SequentialSampler,
            workers(2, num_workers),
        )
        .unwrap();
        for epoch in [0, 7] {
            for batch in loader.epoch(epoch).unwrap() {
                assert_eq!(batch.unwrap(), Tensor::from_slice(&[epoch as i64; 2]));
            }
        }
    }
}

#[test]
fn batches_keep_their_order_though_the_first_is_ready_last() {
    let batches = in_time(|| {
        let (done, wait) = channel();
        let (done, wait) = (Mutex::new(done), Mutex::new(wait));
        let hook = move |indices: &[usize]| {
            match indices[0] {
                0 => wait.lock().unwrap().recv().unwrap(),
                3 => done.lock().unwrap().send(()).unwrap(),
                _ => {}
            }
            Ok(())
        };
        let dataset = Numbers { len: 6, hook };
        collect(&DataLoader::with_options(dataset, SequentialSampler, workers(1, 2)).unwrap())
    });
    assert_eq!(batches, [[0], [1], [2], [3], [4], [5]]);
}

#[test]
fn a_batch_that_fails_is_an_error_in_its_place() {
    for num_workers in [0, 2] {
        let hook = |indices: &[usize]| if indices[0] == 2 { Err(failure("two")) } else { Ok(()) };
        let loader = DataLoader::with_options(
            Numbers { len: 5, hook },
            SequentialSampler,
            workers(1, num_workers),
        )
        .unwrap();
        let batches: Vec<_> = loader.epoch(0).unwrap().collect();
        let failed: Vec<_> = batches.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, false, true, false, false]);
        assert_eq!(batches[2].as_ref().unwrap_err().to_string(), "two is bad, but must be good");
    }
}

#[test]
#[should_panic(expected = "two is too much")]
fn a_panic_in_a_worker_goes_on_in_the_training_loop() {
    in_time(|| {
        let hook = |indices: &[usize]| {
            assert_ne!(indices[0], 2, "two is too much");
            Ok(())
        };
        let dataset = Numbers { len: 5, hook };
        collect(&DataLoader::with_options(dataset, SequentialSampler, workers(1, 2)).unwrap())
    });
}

#[test]
fn workers_stop_when_the_loop_breaks_off() {
    let (made_before, made_after) = in_time(|| {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let hook = move |_: &[usize]| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let dataset = Numbers { len: 1000, hook };
        let loader = DataLoader::with_options(dataset, SequentialSampler, workers(1, 2)).unwrap();
        let mut epoch = loader.epoch(0).unwrap();
        epoch.next();
        drop(epoch);
        let made_before = made.load(Ordering::SeqCst);
        // The workers are free again: what they still had to do would come before this.
        let batches = loader.epoch(1).unwrap().count();
        (made_before, made.load(Ordering::SeqCst) - made_before - batches)
    });
    // The one that was taken, and what two workers had in flight.
    assert!(made_before <= 1 + 2 * 2, "{made_before} batches were made");
    assert_eq!(made_after, 0);
}

#[test]
fn a_break_waits_for_the_batch_that_is_just_being_made() {
    in_time(|| {
        let (release, gate) = channel::<()>();
        let (began, begun) = channel::<()>();
        let finished = Arc::new(AtomicUsize::new(0));
        let hook = {
            let finished = Arc::clone(&finished);
            let (gate, began): (_, Mutex<Sender<()>>) = (Mutex::new(gate), Mutex::new(began));
            move |_: &[usize]| {
                began.lock().unwrap().send(()).unwrap();
                gate.lock().unwrap().recv().unwrap();
                finished.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        };
        let loader =
            DataLoader::with_options(Numbers { len: 100, hook }, SequentialSampler, workers(1, 1))
                .unwrap();
        let epoch = loader.epoch(0).unwrap();
        begun.recv().unwrap();
        let releases = thread::spawn(move || {
            // One permit for each of the two batches in flight.
            let _ = release.send(());
            let _ = release.send(());
            release
        });
        drop(epoch);
        let finished = finished.load(Ordering::SeqCst);
        assert!((1..=2).contains(&finished), "{finished} batches were finished");
        drop(releases.join());
    });
}

#[test]
fn a_data_set_can_spread_a_batch_over_the_workers() {
    struct Parallel;

    impl Dataset for Parallel {
        type Batch = Tensor;

        fn len(&self) -> usize {
            64
        }

        fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Tensor> {
            let name = thread::current().name().unwrap_or_default().to_owned();
            assert!(name.starts_with("dataloader-"), "runs on {name}");
            let numbers: Vec<i64> = indices.par_iter().map(|&index| index as i64).collect();
            Ok(Tensor::from_slice(&numbers))
        }
    }

    let batches = in_time(|| {
        let loader = DataLoader::with_options(Parallel, SequentialSampler, workers(8, 2)).unwrap();
        collect(&loader)
    });
    assert_eq!(batches.concat(), (0..64).collect::<Vec<i64>>());
}

#[test]
fn loaders_can_share_a_data_set() {
    let dataset = Arc::new(numbers(4));
    let train = DataLoader::new(Arc::clone(&dataset), SequentialSampler, 2).unwrap();
    let test = DataLoader::new(dataset, SequentialSampler, 4).unwrap();
    assert_eq!(collect(&train).concat(), collect(&test).concat());
}

#[test]
fn options_that_cannot_work_are_refused() {
    let refused = |options| {
        DataLoader::with_options(numbers(10), SequentialSampler, options)
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused(workers(0, 0)).unwrap(), "batch_size is 0, but must be at least 1");
    assert_eq!(
        refused(DataLoaderOptions { prefetch_factor: 0, ..workers(1, 1) }).unwrap(),
        "prefetch_factor is 0, but must be at least 1 with workers"
    );
    if !tch::Cuda::is_available() {
        assert_eq!(
            refused(DataLoaderOptions { pin_memory: true, ..workers(1, 1) }).unwrap(),
            "pin_memory is true, but must be false, because this program sees no CUDA device"
        );
    }
}

#[test]
fn a_batch_sampler_determines_the_batches_alone() {
    struct Halves;

    impl BatchSampler for Halves {
        fn batches(&self, len: usize, _epoch: u64) -> Result<Vec<Vec<usize>>> {
            Ok(vec![(0..len / 2).collect(), (len / 2..len).collect()])
        }

        fn num_batches(&self, _len: usize) -> usize {
            2
        }
    }

    let build = |options| DataLoader::with_batch_sampler(numbers(5), Halves, options);
    for num_workers in [0, 2] {
        let loader = build(workers(1, num_workers)).unwrap();
        assert_eq!(loader.len(), 2);
        assert_eq!(collect(&loader), [vec![0, 1], vec![2, 3, 4]]);
    }
    let error = build(workers(2, 0)).unwrap_err().to_string();
    assert!(error.starts_with("batch_size with drop_last is 2 with false"), "{error}");
    assert!(build(DataLoaderOptions { drop_last: true, ..workers(1, 0) }).is_err());
}

#[test]
fn the_loop_gets_its_batches_on_the_device_that_it_names() {
    for num_workers in [0, 2] {
        let loader =
            DataLoader::with_options(numbers(4), SequentialSampler, workers(2, num_workers))
                .unwrap();
        for device in [Device::Cpu, Device::cuda_if_available()] {
            for batch in loader.epoch(0).unwrap().to(device) {
                assert_eq!(batch.unwrap().device(), device);
            }
        }
        if !tch::Cuda::is_available() {
            let batches: Vec<_> = loader.epoch(0).unwrap().to(Device::Cuda(0)).collect();
            assert!(batches.len() == 2 && batches.iter().all(Result::is_err));
        }
    }
}

/// A GPU has them one ahead.
#[test]
fn on_a_device_the_batches_keep_their_order_and_their_errors() {
    let fails = |indices: &[usize]| if indices[0] == 2 { Err(failure("batch")) } else { Ok(()) };
    for num_workers in [0, 2] {
        let numbers = Numbers { len: 5, hook: fails };
        let loader =
            DataLoader::with_options(numbers, SequentialSampler, workers(1, num_workers)).unwrap();
        let mut batches = loader.epoch(0).unwrap().to(Device::cuda_if_available());
        for expected in [Some(0), Some(1), None, Some(3), Some(4)] {
            let left = 5 - expected.unwrap_or(2);
            assert_eq!(batches.size_hint(), (left, Some(left)));
            let batch = batches.next().unwrap();
            assert_eq!(batch.ok().map(|batch| batch.int64_value(&[0]) as usize), expected);
        }
        assert!(batches.next().is_none() && batches.next().is_none());
    }
}

/// On a GPU it comes while the batch before it is handed out, which must not be lost.
#[test]
fn on_a_device_a_panic_of_the_data_set_takes_the_place_of_its_batch() {
    for num_workers in [0, 2] {
        let hook = |indices: &[usize]| {
            assert_ne!(indices[0], 2, "two is too much");
            Ok(())
        };
        let numbers = Numbers { len: 4, hook };
        let loader =
            DataLoader::with_options(numbers, SequentialSampler, workers(1, num_workers)).unwrap();
        let mut batches = loader.epoch(0).unwrap().to(Device::cuda_if_available());
        for expected in [Some(0), Some(1), None, Some(3)] {
            let batch = catch_unwind(AssertUnwindSafe(|| batches.next().unwrap().unwrap()));
            assert_eq!(batch.ok().map(|batch| batch.int64_value(&[0])), expected);
        }
        assert!(batches.next().is_none());
    }
}
