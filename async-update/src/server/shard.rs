//! A part of θ, and all that happens to it.

use super::budget::Budget;
use super::gate::Gate;
use super::histogram::Histogram;
use super::roster::Roster;
use super::rule::Rule;
use crate::events::{Log, Read, Update, now};
use crate::link::Traffic;
use std::time::{Duration, Instant};
use tch::Tensor;
use tch_parallel::{Error, Result};

/// A part of θ and its workers. Everything here happens at once: whoever shares a shard among
/// threads locks it.
#[derive(Debug)]
pub struct Shard {
    theta: Tensor,
    rule: Rule,
    gate: Gate,
    budget: Budget,
    workers: Roster,
    /// How many updates θ has had.
    version: usize,
    staleness: Histogram,
    /// What has gone to and come from workers that are no longer here.
    traffic: Traffic,
    log: Log,
    /// When the first worker read, and when the last update was made.
    span: Option<(Instant, Instant)>,
    /// What the server itself could not do; it ends the training.
    failure: Option<Error>,
}

impl Shard {
    pub fn new(theta: Tensor, rule: Rule, gate: Gate, budget: Budget, log: Log) -> Shard {
        Shard {
            theta,
            rule,
            gate,
            budget,
            workers: Roster::default(),
            version: 0,
            staleness: Histogram::default(),
            traffic: Traffic::default(),
            log,
            span: None,
            failure: None,
        }
    }

    /// A worker comes.
    pub fn join(&mut self, worker: usize) {
        self.workers.join(worker);
    }

    /// A worker goes, well or not. Others do what it has not done.
    pub fn leave(&mut self, worker: usize, traffic: Traffic) {
        self.workers.leave(worker);
        self.budget.give_back(worker);
        self.traffic = self.traffic + traffic;
    }

    /// A worker asks for batches. Whether it gets an answer now, or must wait: for slower ones, or
    /// until it is sure that no batch comes back from a worker that is lost.
    pub fn ask(&mut self, worker: usize) -> bool {
        let Some(clock) = self.workers.waits(worker) else { return true };
        if self.budget.is_used_up() {
            // Who waits as well sends what it has when it is told that nothing is left.
            return self.budget.is_settled(|worker| self.workers.is_waiting(worker));
        }
        self.gate.is_open(clock, self.workers.slowest())
    }

    /// Copies θ into `out`, and says how many of the `wanted` batches a worker may do with it.
    /// With 0 there is nothing left to do, and nothing is copied.
    pub fn read(&mut self, worker: usize, wanted: usize, out: &mut Tensor) -> Result<usize> {
        let granted = self.grant(worker, wanted);
        if granted > 0 {
            out.f_copy_(&self.theta).map_err(Error::tensor("copy θ"))?;
            self.span.get_or_insert((Instant::now(), Instant::now()));
            let (clock, version) = (self.workers.read(worker), self.version);
            self.log.read(&Read { worker, clock, version, at: now() })?;
        }
        Ok(granted)
    }

    /// How many of the `wanted` batches a worker may do.
    pub fn grant(&mut self, worker: usize, wanted: usize) -> usize {
        self.workers.goes_on(worker);
        self.budget.grant(worker, wanted)
    }

    /// Applies what a worker has sent after so many batches, and gives what it is to be sent.
    pub fn update(
        &mut self,
        worker: usize,
        batches: usize,
        sent: &Tensor,
    ) -> Result<Option<Tensor>> {
        self.budget.complete(worker, batches);
        let version = self.version;
        let (clock, staleness) = self.workers.update(worker);
        let reply = self.rule.apply(&mut self.theta, sent, staleness)?;
        if reply.is_some() {
            self.workers.has_seen(worker);
        }
        self.version += 1;
        self.staleness.add(staleness);
        if let Some((_, last)) = &mut self.span {
            *last = Instant::now();
        }
        self.log.update(&Update { worker, clock, staleness, version, at: now() })?;
        Ok(reply)
    }

    /// How many workers take part now.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Whether all batches are done and the last worker has gone.
    pub fn is_over(&self) -> bool {
        self.workers.is_empty() && self.budget.is_used_up()
    }

    /// Whoever asks from here on is told that there is nothing left to do.
    pub fn close(&mut self) {
        self.budget.close();
    }

    /// Ends the training because of something that the server itself could not do.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.close();
    }

    /// What [`fail`](Self::fail) was told.
    pub fn failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    pub fn theta(&self) -> &Tensor {
        &self.theta
    }

    /// How many updates θ has had.
    pub fn version(&self) -> usize {
        self.version
    }

    /// The batches whose gradients have come.
    pub fn batches(&self) -> usize {
        self.budget.done()
    }

    pub fn staleness(&self) -> &Histogram {
        &self.staleness
    }

    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub fn log(&mut self) -> &mut Log {
        &mut self.log
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
        let log = Log::create(None, 0, 1).unwrap();
        let theta = Tensor::from_slice(&[100.0]);
        let mut shard = Shard::new(theta, rule, gate, Budget::new(batches), log);
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

    /// How many updates had a staleness of 0, 1 …
    fn staleness(shard: &Shard) -> Vec<usize> {
        let text = shard.staleness().to_string();
        let count = |line: &str| line.split_whitespace().nth(1).unwrap().parse().unwrap();
        text.lines().skip(1).map(count).collect()
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
        assert_eq!(staleness(&shard), [4, 0, 0, 0, 1]);
    }

    #[test]
    fn a_workers_own_updates_make_nothing_stale() {
        let mut shard = shard(Gate::Free, 9, &[1, 2]);
        read(&mut shard, 1);
        push(&mut shard, 1, 1.0);
        push(&mut shard, 1, 1.0);
        push(&mut shard, 2, 1.0);
        assert_eq!(staleness(&shard), [2, 0, 1]);
    }

    #[test]
    fn a_worker_that_has_gone_holds_nobody_up() {
        let mut shard = shard(Gate::Stale(0), 9, &[1, 2]);
        read(&mut shard, 1);
        push(&mut shard, 1, 1.0);
        assert!(!shard.ask(1), "worker 2 has not made its first update");
        shard.leave(2, Traffic::default());
        assert!(shard.ask(1));
    }

    #[test]
    fn a_worker_that_comes_late_begins_where_the_slowest_stands() {
        let mut shard = shard(Gate::Stale(1), 9, &[1]);
        for _ in 0..3 {
            read(&mut shard, 1);
            push(&mut shard, 1, 1.0);
        }
        shard.join(2);
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
            assert!(!shard.is_over());
            shard.leave(worker, Traffic::default());
        }
        assert!(shard.is_over());
        assert_eq!((shard.version(), shard.batches()), (1, 1));
    }

    #[test]
    fn nobody_is_dismissed_who_may_be_needed_for_a_lost_workers_batches() {
        let mut shard = shard(Gate::Free, 2, &[1, 2]);
        read(&mut shard, 1);
        read(&mut shard, 2);
        push(&mut shard, 2, 1.0);
        assert!(!shard.ask(2), "worker 1 may still be lost");
        shard.leave(1, Traffic::default());
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
        shard.leave(1, Traffic::default());
        assert!(!shard.is_over());
    }
}
