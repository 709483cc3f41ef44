//! A part of θ, and what the server knows of those who work on it.

use super::budget::Budget;
use super::gate::Gate;
use super::histogram::Histogram;
use super::rule::Rule;
use crate::link::Traffic;
use crate::report::{Log, Read, Update, now};
use std::collections::BTreeMap;
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
    /// Those that take part now, by rank.
    workers: BTreeMap<usize, Worker>,
    /// How many updates θ has had.
    version: usize,
    /// Whether a worker has been told that there is nothing left to do.
    has_dismissed: bool,
    staleness: Histogram,
    /// What has gone to and come from workers that are no longer here.
    traffic: Traffic,
    log: Log,
    /// When the first worker read, and when the last update was made.
    span: Option<(Instant, Instant)>,
    /// What the server itself could not do; it ends the training.
    failure: Option<Error>,
}

/// What is known of a worker.
#[derive(Debug)]
struct Worker {
    /// How many updates it has made.
    clock: usize,
    /// How many updates the others have made since it last read.
    unseen: usize,
}

impl Shard {
    pub fn new(theta: Tensor, rule: Rule, gate: Gate, budget: Budget, log: Log) -> Shard {
        Shard {
            theta,
            rule,
            gate,
            budget,
            workers: BTreeMap::new(),
            version: 0,
            has_dismissed: false,
            staleness: Histogram::default(),
            traffic: Traffic::default(),
            log,
            span: None,
            failure: None,
        }
    }

    /// A worker comes. Its clock begins with that of the slowest: the others do not wait for what
    /// was done before it came.
    pub fn join(&mut self, worker: usize) {
        let clock = self.slowest().unwrap_or(0);
        self.workers.insert(worker, Worker { clock, unseen: 0 });
    }

    /// A worker goes, well or not. Nobody waits for it any more, and others do what it has not done.
    pub fn leave(&mut self, worker: usize, traffic: Traffic) {
        self.workers.remove(&worker);
        self.budget.give_back(worker);
        self.traffic = self.traffic + traffic;
    }

    /// Whether a worker gets an answer now, or must wait for slower ones.
    pub fn may_read(&self, worker: usize) -> bool {
        let Some(worker) = self.workers.get(&worker) else { return true };
        let slowest = self.slowest().unwrap_or(0);
        self.budget.is_used_up() || self.gate.is_open(worker.clock, slowest)
    }

    /// Copies θ into `out`, and says how many of the `wanted` batches a worker may do with it.
    /// With 0 there is nothing left to do, and nothing is copied.
    pub fn read(&mut self, worker: usize, wanted: usize, out: &mut Tensor) -> Result<usize> {
        let granted = self.grant(worker, wanted);
        let version = self.version;
        if granted > 0
            && let Some(state) = self.workers.get_mut(&worker)
        {
            out.f_copy_(&self.theta).map_err(Error::tensor("copy θ"))?;
            state.unseen = 0;
            self.span.get_or_insert((Instant::now(), Instant::now()));
            self.log.read(&Read { worker, clock: state.clock, version, at: now() })?;
        }
        Ok(granted)
    }

    /// How many of the `wanted` batches a worker may do.
    pub fn grant(&mut self, worker: usize, wanted: usize) -> usize {
        let granted = self.budget.grant(worker, wanted);
        self.has_dismissed |= granted == 0;
        granted
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
        let (mut clock, mut staleness) = (0, 0);
        for (&rank, state) in &mut self.workers {
            if rank == worker {
                (clock, staleness) = (state.clock, state.unseen);
                state.clock += 1;
            } else {
                state.unseen += 1;
            }
        }
        let reply = self.rule.apply(&mut self.theta, sent, staleness)?;
        if reply.is_some()
            && let Some(state) = self.workers.get_mut(&worker)
        {
            // It has just learnt where θ stands.
            state.unseen = 0;
        }
        self.version += 1;
        self.staleness.add(staleness);
        if let Some((_, last)) = &mut self.span {
            *last = Instant::now();
        }
        self.log.update(&Update { worker, clock, staleness, version, at: now() })?;
        Ok(reply)
    }

    /// The clock of the slowest worker.
    fn slowest(&self) -> Option<usize> {
        self.workers.values().map(|worker| worker.clock).min()
    }

    /// How many workers take part now.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Whether the batches are used up and the last worker has gone.
    pub fn is_over(&self) -> bool {
        self.has_dismissed && self.workers.is_empty()
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
