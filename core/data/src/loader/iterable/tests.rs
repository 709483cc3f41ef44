use super::super::tests::{in_time, workers};
use super::*;
use crate::Error;
use rayon::prelude::*;
use tch::Tensor;

/// The numbers that one function gives each worker, and of which another makes batches.
struct Numbers<F, C>(F, C);

impl<F, C> IterableDataset for Numbers<F, C>
where
    F: Fn(WorkerInfo) -> Samples<i64> + Send + Sync,
    C: Fn(&[i64]) -> Tensor + Send + Sync,
{
    type Sample = i64;
    type Batch = Tensor;

    fn samples(&self, worker: WorkerInfo, _epoch: u64) -> Result<Samples<i64>> {
        Ok((self.0)(worker))
    }

    fn collate(&self, samples: Vec<i64>) -> Result<Tensor> {
        Ok((self.1)(&samples))
    }
}

/// The numbers below `len`, shared out, with a hook that runs before each is read.
fn numbers_with(
    len: i64,
    hook: impl Fn(i64) -> Result<()> + Clone + Send + Sync + 'static,
) -> impl IterableDataset<Sample = i64, Batch = Tensor> + 'static {
    let shared = move |worker: WorkerInfo| {
        let hook = hook.clone();
        worker.share_out((0..len).map(move |number| hook(number).map(|()| number)))
    };
    Numbers(shared, Tensor::from_slice::<i64>)
}

fn numbers(len: i64) -> impl IterableDataset<Sample = i64, Batch = Tensor> + 'static {
    numbers_with(len, |_| Ok(()))
}

fn collect(epoch: impl Iterator<Item = Result<Tensor>>) -> Vec<Vec<i64>> {
    epoch.map(|batch| Vec::try_from(batch.unwrap()).unwrap()).collect()
}

#[test]
fn ranks_have_equally_many_batches_whatever_the_number_of_samples() {
    for (len, num_workers, drop_last) in [(10, 0, false), (23, 2, false), (25, 3, true)] {
        let batches = [0, 1, 2, 3].map(|rank| {
            let options = DataLoaderOptions { drop_last, ..workers(2, num_workers) };
            let shard = Shard::new(rank, 4).unwrap();
            let loader = DataLoader::iterable(numbers(len), shard, options).unwrap();
            loader.epoch(0).unwrap().count()
        });
        assert!(batches[0] > 0 && batches == [batches[0]; 4], "{batches:?} batches of {len}");
    }
}

#[test]
fn a_worker_can_read_files_of_its_own() {
    let own_files = |worker: WorkerInfo| {
        let Shard { rank, num_replicas, .. } = worker.shard();
        let files = (0..8i64).skip(rank).step_by(num_replicas);
        worker.own_part(files.flat_map(|file| (file * 10..file * 10 + 2).map(Ok)))
    };
    let (files, shard) = (Numbers(own_files, Tensor::from_slice::<i64>), Shard::new(1, 2).unwrap());
    let loader = DataLoader::iterable(files, shard, workers(4, 2)).unwrap();
    assert_eq!(collect(loader.epoch(0).unwrap()), [[20, 21, 60, 61], [30, 31, 70, 71]]);
}

#[test]
fn an_epoch_goes_on_from_any_step() {
    for num_workers in [0, 2] {
        let loader =
            DataLoader::iterable(numbers(33), Shard::WHOLE, workers(4, num_workers)).unwrap();
        let whole = collect(loader.epoch(0).unwrap());
        for step in [3, whole.len()] {
            assert_eq!(collect(loader.epoch_from(0, step).unwrap()), whole[step..]);
        }
    }
}

#[test]
fn out_of_order_a_slow_worker_holds_up_no_other() {
    let [quick, slow] = in_time(|| {
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let own_numbers = move |worker: WorkerInfo| {
            let (id, gate) = (worker.id() as i64, Arc::clone(&gate));
            // The first worker waits.
            let wait = move |_: &i64| id > 0 || gate.lock().unwrap().recv().is_ok();
            worker.own_part((id * 10..id * 10 + 10).filter(wait).map(Ok))
        };
        let options = DataLoaderOptions { in_order: false, ..workers(1, 2) };
        let data = Numbers(own_numbers, Tensor::from_slice::<i64>);
        let loader = DataLoader::iterable(data, Shard::WHOLE, options).unwrap();
        let mut epoch = loader.epoch(0).unwrap();
        let quick = collect(epoch.by_ref().take(10));
        (0..10).for_each(|_| release.send(()).unwrap());
        [quick, collect(epoch)].map(|batches| batches.concat())
    });
    assert_eq!(quick, (10..20).collect::<Vec<_>>());
    assert_eq!(slow, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_sample_that_cannot_be_read_is_an_error_in_place_of_its_batch() {
    for num_workers in [0, 1] {
        let hook = |number| match number {
            2 => Err(Error::argument("two", "bad", "good")),
            _ => Ok(()),
        };
        let (data, options) = (numbers_with(6, hook), workers(2, num_workers));
        let loader = DataLoader::iterable(data, Shard::WHOLE, options).unwrap();
        let batches: Vec<_> = loader.epoch(0).unwrap().collect();
        let failed: Vec<_> = batches.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true, false, false]);
        assert_eq!(collect(batches.into_iter().filter(Result::is_ok)).concat(), [0, 1, 3, 4, 5]);
        // Also where the batch is skipped.
        assert!(loader.epoch_from(0, 1).is_ok());
        let error = loader.epoch_from(0, 2).unwrap_err().to_string();
        assert_eq!(error, "two is bad, but must be good");
    }
}

#[test]
fn two_epochs_at_once_do_not_wait_for_each_other() {
    in_time(|| {
        let loader = DataLoader::iterable(numbers(50), Shard::WHOLE, workers(1, 2)).unwrap();
        let (one, other) = (loader.epoch(0).unwrap(), loader.epoch(0).unwrap());
        let pairs = one.zip(other).map(|(one, other)| (one.unwrap(), other.unwrap()));
        assert_eq!(pairs.filter(|(one, other)| one == other).count(), 50);
    });
}

#[test]
fn a_batch_can_be_put_together_by_all_workers() {
    let shared = |worker: WorkerInfo| worker.share_out((0..200i64).map(Ok));
    let squared = |samples: &[i64]| {
        let squares: Vec<i64> = samples.par_iter().map(|number| number * number).collect();
        Tensor::from_slice(&squares)
    };
    in_time(move || {
        let data = Numbers(shared, squared);
        let loader = DataLoader::iterable(data, Shard::WHOLE, workers(5, 2)).unwrap();
        let mut squares = collect(loader.epoch(0).unwrap()).concat();
        squares.sort_unstable();
        assert_eq!(squares, (0..200).map(|number| number * number).collect::<Vec<i64>>());
    });
}
