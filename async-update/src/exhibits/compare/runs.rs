//! A training in processes of its own, and what its metrics say.

use super::args::CompareArgs;
use crate::events::{Outcome, Step, Update};
use anyhow::{Context, Result, ensure};
use report::multiprocessing::{self, Process};
use report::read_events;
use std::env::current_exe;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A method with its flags, and what it needs to run.
#[derive(Debug)]
pub struct MethodRun {
    /// The command line, without what all methods have in common.
    pub flags: &'static [&'static str],
    /// Where the gradients are computed.
    workers: Workers,
    /// Whether it has a curve of its own in the charts: three methods take the same steps.
    pub has_curve: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Workers {
    /// In every rank.
    AllRanks,
    /// In every rank but the first, which is the server.
    AllButTheServer,
    /// In the threads of one process.
    Threads,
}

const fn run(flags: &'static [&'static str], workers: Workers) -> MethodRun {
    MethodRun { flags, workers, has_curve: true }
}

const fn without_curve(run: MethodRun) -> MethodRun {
    MethodRun { has_curve: false, ..run }
}

/// All methods, the synchronous ones first.
pub const METHODS: [MethodRun; 11] = [
    run(&["sync-allreduce"], Workers::AllRanks),
    without_curve(run(&["sync-ps"], Workers::AllRanks)),
    without_curve(run(&["ring"], Workers::AllRanks)),
    run(&["local-sgd", "--period=8"], Workers::AllRanks),
    run(&["post-local", "--start=50", "--period=8"], Workers::AllRanks),
    run(&["ssp", "--staleness=4"], Workers::AllButTheServer),
    run(&["async-ps"], Workers::AllButTheServer),
    run(&["async-ps", "--sync-every=8"], Workers::AllButTheServer),
    run(&["async-ps", "--staleness-aware"], Workers::AllButTheServer),
    run(&["easgd", "--tau=4"], Workers::AllButTheServer),
    run(&["hogwild"], Workers::Threads),
];

/// α of easgd: which part of the way worker and centre go in an exchange. It shall be the same with
/// every learning rate, as nothing else in the comparison depends on the rate; and lr · rho, with a
/// fixed rho, would soon be no part of a way.
const ELASTICITY: f64 = 0.2;

impl MethodRun {
    pub fn name(&self) -> String {
        self.flags.join(" ")
    }
}

/// What a run has shown.
#[derive(Debug)]
pub struct Measured {
    pub method: &'static MethodRun,
    pub outcome: Outcome,
    /// Of every update, where a method lets gradients grow stale: updates that others made since
    /// the parameters were read.
    pub staleness: Vec<usize>,
    /// The batches of all workers in the order in which they were done.
    pub steps: Vec<Step>,
}

/// Runs this program with everything but the method given.
pub struct Runs<'a> {
    args: &'a CompareArgs,
    /// For what the processes write.
    directory: TempDir,
}

impl<'a> Runs<'a> {
    pub fn new(args: &'a CompareArgs) -> Result<Self> {
        let directory = tempfile::tempdir().context("cannot create a directory for metrics")?;
        Ok(Runs { args, directory })
    }

    /// Trains, and shows every line on stderr as it comes. `slow`: whether the last worker is.
    ///
    /// # Errors
    /// If a process fails or takes too long; none is left then.
    pub fn run(&self, method: &'static MethodRun, slow: bool) -> Result<Measured> {
        let name = method.name();
        let number = METHODS.iter().position(|other| other.flags == method.flags);
        let directory = format!("{}-{slow}", number.unwrap_or_default());
        let metrics = self.directory.path().join(directory);
        let command = || self.command(method, slow, &metrics);
        let workers = self.args.workers as usize;
        let (processes, files) = match method.workers {
            Workers::AllRanks => (self.ranks(&name, workers, command)?, workers),
            Workers::AllButTheServer => (self.ranks(&name, workers + 1, command)?, workers + 1),
            Workers::Threads => (vec![Process::new(&name, command()?)], workers),
        };
        multiprocessing::run(processes, self.args.time_limit(), |_, line| {
            eprintln!("{name:<28}| {line}");
        })?;
        read(method, &metrics, files)
    }

    fn ranks(
        &self,
        name: &str,
        number: usize,
        command: impl Fn() -> Result<Command>,
    ) -> Result<Vec<Process>> {
        let commands = (0..number).map(|_| command()).collect::<Result<_>>()?;
        Ok(Process::ranks(name, commands)?)
    }

    fn command(&self, method: &MethodRun, slow: bool, metrics: &Path) -> Result<Command> {
        let CompareArgs { workers, step_time, slowdown, epochs, lr, .. } = self.args;
        let mut command = Command::new(current_exe().context("cannot find this program")?);
        command.args(method.flags).args([
            format!("--epochs={epochs}"),
            format!("--lr={lr}"),
            format!("--step-time={step_time}"),
        ]);
        let last = match method.workers {
            Workers::AllRanks => workers - 1,
            Workers::AllButTheServer => *workers,
            Workers::Threads => {
                command.arg(format!("--threads={workers}"));
                workers - 1
            }
        };
        if method.flags[0] == "easgd" {
            command.arg(format!("--rho={}", ELASTICITY / lr));
        }
        if slow {
            command.arg(format!("--straggle={last}:{}", step_time * (slowdown - 1)));
        }
        command.arg("--metrics").arg(metrics).env("OMP_NUM_THREADS", "1");
        Ok(command)
    }
}

/// What the ranks, or threads, have written.
fn read(method: &'static MethodRun, metrics: &Path, files: usize) -> Result<Measured> {
    let (mut outcomes, mut updates, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for file in (0..files).map(|rank| metrics.join(format!("rank{rank}.jsonl"))) {
        outcomes.extend(read_events::<Outcome>(&file, "outcome")?);
        updates.extend(read_events::<Update>(&file, "update")?);
        steps.extend(read_events::<Step>(&file, "step")?);
    }
    ensure!(!steps.is_empty(), "{} reported no step", method.name());
    steps.sort_by(|a, b| a.at.total_cmp(&b.at));
    let outcome = outcomes.pop().with_context(|| format!("{} has no outcome", method.name()))?;
    let staleness = updates.iter().map(|update| update.staleness).collect();
    Ok(Measured { method, outcome, staleness, steps })
}
