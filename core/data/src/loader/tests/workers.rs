//! Workers keep the order of the batches, and stop with the loop.

use super::*;

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

/// A loader whose first sample is not ready before the sender sends, or is dropped.
fn with_a_slow_first(
    len: usize,
    options: DataLoaderOptions,
) -> (Sender<()>, DataLoader<impl Dataset<Batch = Tensor>>) {
    let (release, gate) = channel();
    let gate = Mutex::new(gate);
    let hook = move |indices: &[usize]| {
        if indices[0] == 0 {
            let _ = gate.lock().unwrap().recv();
        }
        Ok(())
    };
    let loader = DataLoader::with_options(numbers_with(len, hook), SequentialSampler, options);
    (release, loader.unwrap())
}

#[test]
fn out_of_order_no_batch_waits_for_a_slow_one() {
    let (mut quick, last) = in_time(|| {
        let options = DataLoaderOptions { in_order: false, ..workers(1, 2) };
        let (release, loader) = with_a_slow_first(9, options);
        let mut batches = loader.epoch(0).unwrap().map(|batch| batch.unwrap().int64_value(&[0]));
        let quick: Vec<_> = batches.by_ref().take(8).collect();
        release.send(()).unwrap();
        (quick, batches.collect::<Vec<_>>())
    });
    quick.sort_unstable();
    assert_eq!(quick, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(last, [0]);
}

#[test]
fn a_late_batch_is_an_error_and_may_still_come_but_nothing_waits_for_it() {
    in_time(|| {
        let options =
            DataLoaderOptions { timeout: Some(Duration::from_millis(1)), ..workers(1, 1) };
        let (release, loader) = with_a_slow_first(2, options);
        let mut epoch = loader.epoch(0).unwrap();
        let error = epoch.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("batch 0 of this loop, counted from 0, was not ready within 1ms"));
        release.send(()).unwrap();
        assert_eq!(epoch.find_map(Result::ok).unwrap(), Tensor::from_slice(&[0i64]));
        drop(epoch);
        // The worker still hangs when this epoch is dropped.
        assert!(loader.epoch(1).unwrap().next().unwrap().is_err());
        // So it does when this one is dropped, whose first batch nobody has asked for.
        drop(loader.epoch(2).unwrap());
        release.send(()).unwrap();
    });
}

#[test]
fn each_worker_is_initialized_once() {
    let build = || in_order(numbers(9), 1, 3);
    let started = Mutex::new(Vec::new());
    let init = |worker| {
        started.lock().unwrap().push((worker, thread::current().name().map(str::to_owned)));
        Ok(())
    };
    assert_eq!(collect(&build().worker_init_fn(init).unwrap()).len(), 9);
    let mut started = started.into_inner().unwrap();
    started.sort_unstable();
    assert_eq!(started, [0, 1, 2].map(|worker| (worker, Some(format!("dataloader-{worker}")))));
    let error = build().worker_init_fn(|worker| fails_at_two(&[worker])).unwrap_err();
    assert_eq!(error.to_string(), "two is bad, but must be good");
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
        let (gate, began, count) = (Mutex::new(gate), Mutex::new(began), Arc::clone(&finished));
        let hook = move |_: &[usize]| {
            began.lock().unwrap().send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
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
