use super::*;

fn shard(gate: Gate, batches: usize, workers: &[usize]) -> Shard {
    let rule = Rule::Gradient { lr: 1.0, staleness_aware: false };
    let log = Log::create(None, tch_parallel::data::Shard::WHOLE).unwrap();
    let theta = Tensor::from_slice(&[100.0]);
    let mut shard = Shard::new(theta, rule, gate, batches, log);
    workers.iter().for_each(|&worker| shard.join(worker));
    shard
}

fn read(shard: &mut Shard, worker: usize) -> Option<f64> {
    let mut out = Tensor::from_slice(&[0.0]);
    let granted = shard.read(worker, 1, &mut out).unwrap();
    (granted > 0).then(|| f64::try_from(out).unwrap())
}

fn push(shard: &mut Shard, worker: usize, gradient: f64) {
    shard.update(worker, 1, &Tensor::from_slice(&[gradient])).unwrap();
}

/// Workers read (`r1`) and push gradients of 1 (`p1`), in this order.
fn play(shard: &mut Shard, order: &str) {
    for event in order.split(' ') {
        let worker = event[1..].parse().unwrap();
        if event.starts_with('r') {
            read(shard, worker);
        } else {
            push(shard, worker, 1.0);
        }
    }
}

/// The article's second case: one device makes four updates while the other computes.
#[test]
fn a_gradient_that_four_updates_have_overtaken_has_staleness_4() {
    let mut shard = shard(Gate::Free, 9, &[1, 2]);
    assert_eq!(read(&mut shard, 1), Some(100.0));
    for step in 0..4 {
        assert_eq!(read(&mut shard, 2), Some(100.0 - f64::from(step)));
        push(&mut shard, 2, 1.0);
    }
    push(&mut shard, 1, 10.0);
    assert_eq!(read(&mut shard, 1), Some(86.0));
    assert_eq!(shard.staleness, [0, 0, 0, 0, 4]);
}

#[test]
fn staleness_counts_the_updates_of_others_since_the_first_read() {
    for (order, staleness) in [
        ("r1 p1 p1 p2", [0, 0, 2]),
        ("r1 p2 r1 p1 r1 p1", [0, 1, 0]),
        // What comes last was computed from the second read.
        ("r1 r1 p1 p2 r1 p1", [0, 1, 1]),
    ] {
        let mut shard = shard(Gate::Free, 9, &[1, 2]);
        play(&mut shard, order);
        assert_eq!(shard.staleness, staleness, "{order}");
    }
}

#[test]
fn a_worker_that_has_gone_holds_nobody_up() {
    let mut shard = shard(Gate::Stale(0), 9, &[1, 2]);
    play(&mut shard, "r1 p1");
    assert!(!shard.ask(1), "worker 2 has not made its first update");
    shard.leave(2);
    assert!(shard.ask(1));
}

#[test]
fn it_is_over_when_the_batches_are_done_and_all_workers_have_gone() {
    let mut shard = shard(Gate::Stale(0), 1, &[1, 2]);
    assert!(read(&mut shard, 1).is_some());
    push(&mut shard, 1, 1.0);
    for worker in [1, 2] {
        assert!(shard.ask(worker), "with nothing left to do there is nothing to wait for");
        assert_eq!(read(&mut shard, worker), None);
        assert!(!shard.is_through());
        shard.leave(worker);
    }
    assert!(shard.is_through());
    assert_eq!((shard.version(), shard.done), (1, 1));
}

#[test]
fn nobody_is_dismissed_who_may_be_needed_for_a_lost_workers_batches() {
    let mut shard = shard(Gate::Free, 2, &[1, 2]);
    play(&mut shard, "r1 r2 p2");
    assert!(!shard.ask(2), "worker 1 may still be lost");
    shard.leave(1);
    assert!(shard.ask(2));
    assert!(read(&mut shard, 2).is_some());
}

#[test]
fn workers_that_hold_gradients_back_do_not_wait_for_each_other() {
    let mut shard = shard(Gate::Free, 2, &[1, 2]);
    play(&mut shard, "r1 r2");
    assert!(!shard.ask(1), "worker 2 computes");
    assert!(shard.ask(2), "worker 1 waits as well");
    assert_eq!(read(&mut shard, 2), None);
}

#[test]
fn who_comes_late_begins_where_the_slowest_stands() {
    let mut shard = shard(Gate::Stale(1), 9, &[1, 2]);
    play(&mut shard, "p1 p2 p1");
    shard.join(3);
    assert_eq!([1, 2, 3].map(|worker| shard.workers[&worker].clock), [2, 1, 1]);
    shard.leave(2);
    assert_eq!(shard.slowest(), 1);
    assert!(shard.ask(1) && shard.ask(3));
    play(&mut shard, "p1");
    assert!(!shard.ask(1) && shard.ask(3));
}

#[test]
fn what_a_lost_worker_has_not_done_is_granted_again_and_does_not_end_the_training() {
    let mut shard = shard(Gate::Free, 5, &[1]);
    shard.grant(1, 4);
    push(&mut shard, 1, 1.0);
    shard.leave(1);
    assert!(!shard.is_through());
    shard.join(2);
    assert_eq!(shard.grant(2, 9), 4);
    shard.update(2, 4, &Tensor::from_slice(&[1.0])).unwrap();
    assert_eq!(shard.done, 5);
}

#[test]
fn after_the_end_nothing_is_granted_even_if_something_comes_back() {
    let mut shard = shard(Gate::Free, 5, &[1, 2]);
    shard.grant(1, 2);
    shard.close();
    shard.leave(1);
    assert_eq!(shard.grant(2, 1), 0);
}
