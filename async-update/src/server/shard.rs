//! A part of θ, and all that happens to it.

use super::gate::Gate;
use super::rule::Rule;
use super::workers::Workers;
use crate::events::{Log, Update, now};
use std::time::{Duration, Instant};
use tch::Tensor;
use tch_parallel::{Error, Result};

/// A part of θ and its workers. Each method is one indivisible step: whoever shares a shard among
/// threads locks it.
pub struct Shard {
    pub theta: Tensor,
    pub workers: Workers,
    /// The staleness of each update that θ has had.
    pub staleness: Vec<usize>,
    pub log: Log,
    /// What the server itself could not do; it ends the training.
    pub failure: Option<Error>,
    rule: Rule,
    gate: Gate,
    /// When the first worker read, and when the last update was made.
    span: Option<(Instant, Instant)>,
}

impl Shard {
    pub fn new(theta: Tensor, rule: Rule, gate: Gate, workers: Workers, log: Log) -> Shard {
        let (staleness, failure, span) = (Vec::new(), None, None);
        Shard { theta, workers, staleness, log, failure, rule, gate, span }
    }

    /// How many updates θ has had.
    pub fn version(&self) -> usize {
        self.staleness.len()
    }

    /// A worker asks for batches. Returns whether it gets an answer now, or must wait.
    pub fn ask(&mut self, worker: usize) -> bool {
        self.workers.ask(worker, self.gate)
    }

    /// Copies θ into `out`, and returns how many of the `wanted` batches a worker may do with it.
    /// With 0 there is nothing left to do, and nothing is copied.
    pub fn read(&mut self, worker: usize, wanted: usize, out: &mut Tensor) -> Result<usize> {
        let granted = self.workers.grant(worker, wanted);
        if granted > 0 {
            out.f_copy_(&self.theta)?;
            self.span.get_or_insert((Instant::now(), Instant::now()));
            let (clock, version) = (self.workers.read(worker), self.version());
            let read = Update { worker, clock, staleness: 0, version, at: now() };
            self.log.metrics.log("read", &read)?;
        }
        Ok(granted)
    }

    /// Applies what a worker has sent after this number of batches, and returns what it is to be sent.
    pub fn update(
        &mut self,
        worker: usize,
        batches: usize,
        sent: &Tensor,
    ) -> Result<Option<Tensor>> {
        let version = self.version();
        let (clock, staleness) = self.workers.update(worker, batches);
        let reply = self.rule.apply(&mut self.theta, sent, staleness)?;
        if reply.is_some() {
            self.workers.has_seen(worker);
        }
        self.staleness.push(staleness);
        if let Some((_, last)) = &mut self.span {
            *last = Instant::now();
        }
        let update = Update { worker, clock, staleness, version, at: now() };
        self.log.metrics.log("update", &update)?;
        Ok(reply)
    }

    /// From the first read to the last update.
    pub fn duration(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(gate: Gate, batches: usize, workers: &[usize]) -> Shard {
        let rule = Rule::Gradient { lr: 1.0, staleness_aware: false };
        let log = Log::create(None, tch_parallel::data::Shard::WHOLE).unwrap();
        let theta = Tensor::from_slice(&[100.0]);
        let mut shard = Shard::new(theta, rule, gate, Workers::new(batches), log);
        workers.iter().for_each(|&worker| shard.workers.join(worker));
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
    fn a_workers_own_updates_make_nothing_stale() {
        let mut shard = shard(Gate::Free, 9, &[1, 2]);
        read(&mut shard, 1);
        push(&mut shard, 1, 1.0);
        push(&mut shard, 1, 1.0);
        push(&mut shard, 2, 1.0);
        assert_eq!(shard.staleness, [0, 0, 2]);
    }

    #[test]
    fn a_worker_that_has_gone_holds_nobody_up() {
        let mut shard = shard(Gate::Stale(0), 9, &[1, 2]);
        read(&mut shard, 1);
        push(&mut shard, 1, 1.0);
        assert!(!shard.ask(1), "worker 2 has not made its first update");
        shard.workers.leave(2);
        assert!(shard.ask(1));
    }

    #[test]
    fn a_worker_that_comes_late_begins_where_the_slowest_stands() {
        let mut shard = shard(Gate::Stale(1), 9, &[1]);
        for _ in 0..3 {
            read(&mut shard, 1);
            push(&mut shard, 1, 1.0);
        }
        shard.workers.join(2);
        assert!(shard.ask(1) && shard.ask(2));
        push(&mut shard, 1, 1.0);
        push(&mut shard, 1, 1.0);
        assert!(!shard.ask(1) && shard.ask(2));
    }

    #[test]
    fn it_is_over_when_the_batches_are_done_and_all_workers_have_gone() {
        let mut shard = shard(Gate::Stale(0), 1, &[1, 2]);
        assert!(read(&mut shard, 1).is_some());
        push(&mut shard, 1, 1.0);
        for worker in [1, 2] {
            assert!(shard.ask(worker), "with nothing left to do there is nothing to wait for");
            assert_eq!(read(&mut shard, worker), None);
            assert!(!shard.workers.are_through());
            shard.workers.leave(worker);
        }
        assert!(shard.workers.are_through());
        assert_eq!((shard.version(), shard.workers.done), (1, 1));
    }

    #[test]
    fn nobody_is_dismissed_who_may_be_needed_for_a_lost_workers_batches() {
        let mut shard = shard(Gate::Free, 2, &[1, 2]);
        read(&mut shard, 1);
        read(&mut shard, 2);
        push(&mut shard, 2, 1.0);
        assert!(!shard.ask(2), "worker 1 may still be lost");
        shard.workers.leave(1);
        assert!(shard.ask(2));
        assert!(read(&mut shard, 2).is_some());
    }

    #[test]
    fn workers_that_hold_gradients_back_do_not_wait_for_each_other() {
        let mut shard = shard(Gate::Free, 2, &[1, 2]);
        read(&mut shard, 1);
        read(&mut shard, 2);
        assert!(!shard.ask(1), "worker 2 computes");
        assert!(shard.ask(2), "worker 1 waits as well");
        assert_eq!(read(&mut shard, 2), None);
    }

    #[test]
    fn workers_that_are_lost_before_the_batches_are_done_do_not_end_the_training() {
        let mut shard = shard(Gate::Free, 9, &[1]);
        read(&mut shard, 1);
        shard.workers.leave(1);
        assert!(!shard.workers.are_through());
    }
}
