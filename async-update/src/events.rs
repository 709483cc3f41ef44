//! What a training logs, and what it prints at the end.

use crate::link::Traffic;
use report::{MetricsLog, println, unix_seconds};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, path::Path};
use tch::{Kind, Tensor};
use tch_parallel::{Error, Result, data::Shard};

/// A worker's lines in `--metrics`.
pub struct Log {
    pub metrics: MetricsLog,
    pub rank: usize,
    /// How many batches this worker has done.
    steps: usize,
}

/// A worker has done a batch: the event `step`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Step {
    /// How many batches this worker had done before.
    pub step: usize,
    /// The loss of the batch, before the update that it leads to.
    pub loss: f32,
    /// The sum of θ's elements after the batch: different wherever models differ.
    pub theta: f64,
    /// When, in seconds since 1970: the clock that all processes of a host share.
    pub at: f64,
}

/// A gradient has gone into shared parameters: the event `update` of the process that keeps them. Its
/// event `read`, of a worker that has read them, has the same fields.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Update {
    /// The rank or thread whose gradient it is, or that reads.
    pub worker: usize,
    /// How many updates this worker had made before.
    pub clock: usize,
    /// Updates that others made since this worker had read the parameters; 0 of a read.
    pub staleness: usize,
    /// How many updates there had been before.
    pub version: usize,
    /// When, in seconds since 1970.
    pub at: f64,
}

impl Log {
    pub fn create(directory: Option<&Path>, rank: impl Into<Shard>) -> Result<Log> {
        let rank = rank.into();
        let metrics = MetricsLog::create(directory, rank)?;
        Ok(Log { metrics, rank: rank.rank(), steps: 0 })
    }

    pub fn step(&mut self, loss: f32, theta: &Tensor) -> Result<()> {
        let theta = f64::try_from(theta.f_sum(Kind::Double)?)?;
        let step = Step { step: self.steps, loss, theta, at: unix_seconds() };
        self.steps += 1;
        self.metrics.log("step", &step)
    }

    /// Prints and logs the outcome of a training run. A loss that is not finite is an error: no batch
    /// has tested the model since its last update.
    pub fn outcome(&mut self, outcome: &Outcome) -> Result<()> {
        if !outcome.loss.is_finite() {
            let found = format!("{} after {} updates", outcome.loss, outcome.updates);
            let expected = "finite; try a smaller --lr";
            return Err(Error::argument("the loss over the test set", found, expected));
        }
        println!("{outcome}");
        self.metrics.log("outcome", outcome)
    }

    /// Logs what this process has sent and received in a training: the event `end`.
    pub fn end(&mut self) -> Result<()> {
        self.metrics.log("end", &BTreeMap::from([("traffic", Traffic::of_this_process())]))
    }
}

/// The outcome of a training: its last line, and in `--metrics` the event `outcome` of rank 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The method, as on the command line.
    pub name: String,
    /// How many processes computed gradients.
    pub workers: usize,
    /// How often a model was changed; gradients that were added up first count once.
    pub updates: usize,
    /// How many gradients were computed and went into θ.
    pub batches: usize,
    pub seconds: f64,
    /// The mean over the test set.
    pub loss: f64,
    /// The share of right answers on it.
    pub accuracy: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, workers, updates, batches, seconds, loss, accuracy } = self;
        let [updates_rate, batches_rate] = [updates, batches].map(|&count| count as f64 / seconds);
        let plural = if *workers == 1 { "" } else { "s" };
        write!(
            f,
            "{name}: {workers} worker{plural}, {updates} updates from {batches} batches in {seconds:.2} s \
             ({updates_rate:.1} updates/s, {batches_rate:.1} batches/s), loss={loss:.4}, accuracy={accuracy:.4}"
        )
    }
}
