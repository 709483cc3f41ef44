//! Workers keep the order of the batches, and stop with the loop.

use super::*;

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
        collect(&in_order(numbers_with(6, hook), 1, 2))
    });
    assert_eq!(batches, [[0], [1], [2], [3], [4], [5]]);
}

#[test]
fn a_batch_that_fails_is_an_error_in_its_place() {
    for num_workers in [0, 2] {
        let loader = in_order(numbers_with(5, fails_at_two), 1, num_workers);
        let batches: Vec<_> = loader.epoch(0).unwrap().collect();
        let failed: Vec<_> = batches.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, false, true, false, false]);
        assert_eq!(batches[2].as_ref().unwrap_err().to_string(), "two is bad, but must be good");
    }
}

#[test]
#[should_panic(expected = "two is too much")]
fn a_panic_in_a_worker_goes_on_in_the_training_loop() {
    in_time(|| collect(&in_order(numbers_with(5, panics_at_two), 1, 2)));
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
        let loader = in_order(numbers_with(1000, hook), 1, 2);
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
fn a_loader_may_be_dropped_mid_epoch() {
    for _ in 0..50 {
        let loader = in_order(numbers(64), 2, 3);
        let mut epoch = loader.epoch(0).unwrap();
        let first = epoch.next().unwrap().unwrap();
        drop(epoch);
        drop(loader);
        assert_eq!(first.int64_value(&[1]), 1);
    }
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
        let loader = in_order(numbers_with(100, hook), 1, 1);
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
    let batch = |indices: &[usize], _epoch: u64| {
        let name = thread::current().name().unwrap_or_default().to_owned();
        assert!(name.starts_with("dataloader-"), "runs on {name}");
        let numbers: Vec<i64> = indices.par_iter().map(|&index| index as i64).collect();
        Ok(Tensor::from_slice(&numbers))
    };
    let batches = in_time(move || collect(&in_order(Made { len: 64, batch }, 8, 2)));
    assert_eq!(batches.concat(), (0..64).collect::<Vec<i64>>());
}
