//! A training by each method, and what its metrics say.

use super::Args;
use crate::events::{Outcome, Step, Update};
use anyhow::{Context, Result, ensure};
use report::comparison::{Comparison, Training, Workers};

/// A method, and what it needs to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its command line, without what all methods have in common.
    pub flags: &'static str,
    workers: WorkersAre,
}

#[derive(Debug, PartialEq, Eq)]
enum WorkersAre {
    AllRanks,
    /// The first rank is the server.
    AllRanksButOne,
    Threads,
}

const fn method(flags: &'static str, workers: WorkersAre) -> Method {
    Method { flags, workers }
}

/// All methods, the synchronous ones first.
pub const METHODS: [Method; 11] = [
    method("sync-allreduce", WorkersAre::AllRanks),
    method("sync-ps", WorkersAre::AllRanks),
    method("ring", WorkersAre::AllRanks),
    method("local-sgd --period=8", WorkersAre::AllRanks),
    method("post-local --start=50 --period=8", WorkersAre::AllRanks),
    method("ssp --staleness=4", WorkersAre::AllRanksButOne),
    method("async-ps", WorkersAre::AllRanksButOne),
    method("async-ps --sync-every=8", WorkersAre::AllRanksButOne),
    method("async-ps --staleness-aware", WorkersAre::AllRanksButOne),
    method("easgd --tau=4", WorkersAre::AllRanksButOne),
    method("hogwild", WorkersAre::Threads),
];

/// α of easgd: by which share of their distance worker and centre move in an exchange. With a fixed rho,
/// lr · rho would depend on the learning rate, and a large rate would push it above 1.
const ELASTICITY: f64 = 0.2;

/// What a training has shown.
#[derive(Debug)]
pub struct Measured {
    pub method: &'static Method,
    pub outcome: Outcome,
    /// Of every update, where a method lets gradients grow stale: updates that others made since
    /// the parameters were read.
    pub staleness: Vec<usize>,
    /// The batches of all workers in the order in which they were done.
    pub steps: Vec<Step>,
}

/// Trains, and shows every line on stderr as it comes. `slow`: whether the last worker is.
pub fn run(
    args: &Args,
    comparison: &Comparison,
    method: &'static Method,
    slow: bool,
) -> Result<Measured> {
    let Args { workers, step_time, slowdown, epochs, lr, .. } = args;
    let name = method.flags;
    let ranks = *workers as usize;
    let (workers, last) = match method.workers {
        WorkersAre::AllRanks => (Workers::Ranks(ranks), ranks - 1),
        WorkersAre::AllRanksButOne => (Workers::Ranks(ranks + 1), ranks),
        WorkersAre::Threads => (Workers::Threads(ranks), ranks - 1),
    };
    let mut flags = format!("{name} --epochs={epochs} --lr={lr} --step-time={step_time}");
    if method.workers == WorkersAre::Threads {
        flags += &format!(" --threads={ranks}");
    }
    if name.starts_with("easgd") {
        flags += &format!(" --rho={}", ELASTICITY / lr);
    }
    if slow {
        flags += &format!(" --straggle={last}:{}", step_time * (slowdown - 1));
    }
    let flags = flags.split(' ').map(Into::into).collect();
    let training = Training { name: name.into(), flags, workers, single_threaded: true };
    let metrics = comparison.run(&training, |line| eprintln!("{name:<28}| {line}"))?;

    let mut steps: Vec<Step> = metrics.events("step")?;
    ensure!(!steps.is_empty(), "{name} reported no step");
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    let outcome = metrics.events("outcome")?.pop();
    let outcome = outcome.with_context(|| format!("{name} has no outcome"))?;
    let updates: Vec<Update> = metrics.events("update")?;
    let staleness = updates.iter().map(|update| update.staleness).collect();
    Ok(Measured { method, outcome, staleness, steps })
}
