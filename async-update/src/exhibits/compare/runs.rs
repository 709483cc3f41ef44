//! A training by each method, and what its metrics say.

use super::Args;
use crate::events::{Outcome, Step, Update};
use anyhow::{Context, Result, ensure};
use exhibit_kit::comparison::{Comparison, Training, Workers};
use report::eprintln;
use serde::Serialize;

/// All methods but `diloco`, whose exchanges pay in longer trainings, and the synchronous ones first: their command lines, without what all have in common.
pub const METHODS: [&str; 11] = [
    "sync-allreduce",
    "sync-ps",
    "ring",
    "local-sgd --period=8",
    "post-local --start=50 --period=8",
    "ssp --staleness=4",
    "async-ps",
    "async-ps --sync-every=8",
    "async-ps --staleness-aware",
    "easgd --tau=4",
    "hogwild",
];

#[derive(Debug, Serialize)]
pub struct Measured {
    /// The method's flags, which are its name as well.
    pub method: &'static str,
    pub outcome: Outcome,
    /// Of every update, where a method lets gradients grow stale: updates that others made since
    /// the parameters were read.
    pub staleness: Vec<usize>,
    /// The batches of all workers in the order in which they were done.
    #[serde(skip)]
    pub steps: Vec<Step>,
}

/// Trains, and shows every line on stderr as it comes. `slow`: whether the last worker is.
pub fn run(args: &Args, runner: &Comparison, method: &'static str, slow: bool) -> Result<Measured> {
    let Args { step_time, slowdown, epochs, lr, .. } = args;
    let count = args.workers as usize;
    let (workers, last, own) = match method.split(' ').next() {
        // The first rank is the server.
        Some("ssp" | "async-ps") => (Workers::Ranks(count + 1), count, String::new()),
        // Such that lr · rho, which must be below 1, does not depend on the learning rate.
        Some("easgd") => (Workers::Ranks(count + 1), count, format!(" --rho={}", 0.2 / *lr)),
        Some("hogwild") => (Workers::Threads(count), count - 1, format!(" --threads={count}")),
        _ => (Workers::Ranks(count), count - 1, String::new()),
    };
    let mut flags = format!("{method} --epochs={epochs} --lr={lr} --step-time={step_time}{own}");
    if slow {
        flags += &format!(" --straggle={last}:{}", step_time * (slowdown - 1));
    }
    let flags = flags.split(' ').map(Into::into).collect();
    let training = Training { name: method.into(), flags, workers, single_threaded: true };
    let metrics = runner.run(&training, |line| eprintln!("{method:<28}| {line}"))?;

    let mut steps: Vec<Step> = metrics.events("step")?;
    ensure!(!steps.is_empty(), "{method} reported no step");
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    let outcome = metrics.events("outcome")?.pop();
    let outcome = outcome.with_context(|| format!("{method} has no outcome"))?;
    let updates: Vec<Update> = metrics.events("update")?;
    let staleness = updates.iter().map(|update| update.staleness).collect();
    Ok(Measured { method, outcome, staleness, steps })
}
