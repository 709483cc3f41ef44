//! A part of θ, the workers that train it, and the batches that are left for them.

use super::{gate::Gate, rule::Rule};
use crate::events::{Log, Update};
use report::unix_seconds;
use std::{collections::BTreeMap, time::Duration, time::Instant};
use tch::Tensor;
use tch_parallel::{Error, Result};

/// A part of θ and its workers. Each method is one indivisible step: whoever shares a shard among threads locks it.
///
/// Batches are handed out to whoever asks, so a fast worker does more of them; what a worker that is
/// lost has not done is handed out again.
pub struct Shard {
    pub theta: Tensor,
    /// Those that take part now, by rank.
    pub workers: BTreeMap<usize, Worker>,
    /// Batches that have not been handed out.
    left: usize,
    /// Batches whose gradients have come.
    pub done: usize,
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

/// How far a worker is.
#[derive(Default)]
pub struct Worker {
    /// How many updates it has made.
    clock: usize,
    /// Updates by others since the first of its reads whose gradient has not come yet.
    unseen: usize,
    /// Updates by others since its last read.
    newest: usize,
    waits: bool,
    /// Batches that it has been granted and has not reported as done.
    granted: usize,
}

impl Shard {
    /// Without workers, for this number of batches.
    pub fn new(theta: Tensor, rule: Rule, gate: Gate, batches: usize, log: Log) -> Shard {
        let (workers, staleness, failure, span) = (BTreeMap::new(), Vec::new(), None, None);
        Shard { theta, workers, left: batches, done: 0, staleness, log, failure, rule, gate, span }
    }

    /// How many updates θ has had.
    pub fn version(&self) -> usize {
        self.staleness.len()
    }

    /// A worker comes. Its clock begins with that of the slowest: the others do not wait for what
    /// was done before it came.
    pub fn join(&mut self, rank: usize) {
        let clock = self.slowest();
        self.workers.insert(rank, Worker { clock, ..Worker::default() });
    }

    /// A worker goes, well or not. Nobody waits for it any more, and others do what it has not done.
    pub fn leave(&mut self, rank: usize) {
        self.left += self.workers.remove(&rank).map_or(0, |worker| worker.granted);
    }

    fn worker(&mut self, rank: usize) -> &mut Worker {
        self.workers.entry(rank).or_default()
    }

    /// A worker asks for batches. Returns whether it gets an answer now, or must wait: for slower
    /// workers, or until no batch can come back from a worker that is lost.
    pub fn ask(&mut self, rank: usize) -> bool {
        self.worker(rank).waits = true;
        if self.left > 0 {
            return self.gate.is_open(self.worker(rank).clock, self.slowest());
        }
        // Others that wait will send what they hold back when they are told that nothing is left.
        self.workers.values().all(|worker| worker.granted == 0 || worker.waits)
    }

    /// Returns how many of the `wanted` batches a worker may do. 0 if nothing is left.
    pub fn grant(&mut self, rank: usize, wanted: usize) -> usize {
        let granted = wanted.min(self.left);
        self.left -= granted;
        let worker = self.worker(rank);
        worker.waits = false;
        worker.granted += granted;
        granted
    }

    /// Copies θ into `out`, and returns how many of the `wanted` batches a worker may do with it.
    /// With 0 there is nothing left to do, and nothing is copied.
    pub fn read(&mut self, rank: usize, wanted: usize, out: &mut Tensor) -> Result<usize> {
        let granted = self.grant(rank, wanted);
        if granted > 0 {
            out.f_copy_(&self.theta)?;
            self.span.get_or_insert((Instant::now(), Instant::now()));
            let (version, worker) = (self.version(), self.worker(rank));
            worker.newest = 0;
            if worker.granted == granted {
                worker.unseen = 0;
            }
            let clock = worker.clock;
            let read = Update { worker: rank, clock, staleness: 0, version, at: unix_seconds() };
            self.log.metrics.log("read", &read)?;
        }
        Ok(granted)
    }

    /// Applies what a worker has sent after this number of batches, and returns what it is to be sent.
    pub fn update(&mut self, rank: usize, batches: usize, sent: &Tensor) -> Result<Option<Tensor>> {
        let version = self.version();
        self.done += batches;
        let others = self.workers.iter_mut().filter(|(other, _)| **other != rank);
        for (_, worker) in others {
            worker.unseen += 1;
            worker.newest += 1;
        }
        let worker = self.worker(rank);
        let (clock, staleness) = (worker.clock, worker.unseen);
        worker.clock += 1;
        // What has not come yet, it computes from its last read.
        worker.unseen = worker.newest;
        worker.granted = worker.granted.saturating_sub(batches);
        let reply = self.rule.apply(&mut self.theta, sent, staleness)?;
        if reply.is_some() {
            // It learns with its update where θ stands.
            (self.worker(rank).unseen, self.worker(rank).newest) = (0, 0);
        }
        self.staleness.push(staleness);
        if let Some((_, last)) = &mut self.span {
            *last = Instant::now();
        }
        let update = Update { worker: rank, clock, staleness, version, at: unix_seconds() };
        self.log.metrics.log("update", &update)?;
        Ok(reply)
    }

    /// The clock of the slowest worker; 0 without any.
    fn slowest(&self) -> usize {
        self.workers.values().map(|worker| worker.clock).min().unwrap_or(0)
    }

    /// Whether all batches are done and the last worker has gone.
    pub fn is_through(&self) -> bool {
        self.left == 0 && self.workers.is_empty()
    }

    /// Grants nothing from here on.
    pub fn close(&mut self) {
        self.left = 0;
        self.workers.values_mut().for_each(|worker| worker.granted = 0);
    }

    /// From the first read to the last update.
    pub fn duration(&self) -> Duration {
        self.span.map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

#[cfg(test)]
mod tests;
