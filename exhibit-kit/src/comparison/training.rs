//! Runs this program again with other flags, and reads the metrics that it writes.

use crate::multiprocessing::{self, Process, end_with};
use anyhow::{Context, Result, ensure};
use report::{DeviceReport, read_events};
use serde::de::DeserializeOwned;
use std::{env::current_exe, env::var, ffi::OsString, path::Path, path::PathBuf};
use std::{process::Command, process::id};
use tch_parallel::{Devices, distributed::Env};
use tch_parallel_base::check;
use tempfile::{TempDir, tempdir};

/// The environment variable that tells a training the process id of the comparison that measures it.
const MEASURED_BY: &str = "TCH_PARALLEL_MEASURED_BY";

/// Whether a comparison has started this process. If so, only its bytes and seconds matter, and it ends with the
/// comparison, even if that is killed. Fails if it is gone already.
pub fn is_measured() -> Result<bool> {
    let Ok(comparison) = var(MEASURED_BY) else { return Ok(false) };
    end_with(comparison.parse().with_context(|| format!("{MEASURED_BY} is no process"))?)?;
    Ok(true)
}

/// A training by this program, in processes of its own.
#[derive(Debug, Clone)]
pub struct Training {
    /// The training's name in messages.
    pub name: String,
    /// The arguments on the command line, without `--metrics`.
    pub flags: Vec<OsString>,
    /// Where it runs.
    pub workers: Workers,
    /// Whether each process has one thread only, so that one logical device gets no more than each of several.
    pub single_threaded: bool,
}

/// Where a training runs, and how many files of metrics it writes: `rank0.jsonl`, `rank1.jsonl` …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One process, with one file.
    Process,
    /// Threads of one process, with a file each.
    Threads(usize),
    /// Processes with a file each, the ranks of one job.
    Ranks(usize),
}

/// Runs trainings one after the other.
#[derive(Debug)]
pub struct Comparison {
    /// In seconds.
    timeout: u64,
    directory: TempDir,
}

impl Comparison {
    /// A comparison in which no training may take longer than `timeout` seconds, the user's `--timeout`. Fails in a
    /// process that a launcher has started, since the comparison starts all ranks itself.
    pub fn new(timeout: u64) -> Result<Self> {
        ensure!(
            Env::read()?.is_none(),
            "a launcher has started this process as a rank, but compare starts all ranks by \
             itself: run it without a launcher"
        );
        let directory = tempdir().context("cannot create a directory for metrics")?;
        Ok(Self { timeout, directory })
    }

    /// A directory for files that trainings read. It is removed at the end.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Trains, and passes every line that a process prints to `on_line` at once. The metrics can be read until the next
    /// training starts. If a process fails or takes too long, this fails once all have been ended.
    pub fn run(&self, training: &Training, on_line: impl FnMut(&str)) -> Result<Metrics> {
        let Training { name, flags, workers, single_threaded } = training;
        let metrics = self.directory().join("metrics");
        let command = || -> Result<Command> {
            let mut command = Command::new(current_exe().context("cannot find this program")?);
            command.args(flags).arg("--metrics").arg(&metrics);
            command.env(MEASURED_BY, id().to_string());
            command.envs(single_threaded.then_some(("OMP_NUM_THREADS", "1")));
            Ok(command)
        };
        let (processes, files) = match *workers {
            Workers::Process => (vec![Process::new(name, command()?)], 1),
            Workers::Threads(threads) => (vec![Process::new(name, command()?)], threads),
            Workers::Ranks(ranks) => {
                let commands = (0..ranks).map(|_| command()).collect::<Result<_>>()?;
                (Process::ranks(name, commands)?, ranks)
            }
        };
        multiprocessing::run(processes, self.timeout, on_line)?;
        let files = (0..files).map(|rank| metrics.join(format!("rank{rank}.jsonl"))).collect();
        Ok(Metrics { name: name.clone(), files })
    }
}

/// The number of rows of a batch that each of several devices gets. [`Error::Argument`](tch_parallel::Error::Argument)
/// for a single device, which leaves nothing to compare, and for a batch that cannot be divided evenly.
pub fn equal_share(batch_size: usize, devices: &Devices) -> tch_parallel::Result<usize> {
    let count = devices.len();
    let expected = "at least two devices, such as 4xcpu: on one there is nothing to compare";
    check(count > 1, "--devices", devices, expected)?;
    let is_divisible = batch_size > 0 && batch_size.is_multiple_of(count);
    let expected = format_args!("{count} or a multiple of it: an equal share for each device");
    check(is_divisible, "--batch-size", batch_size, expected)?;
    Ok(batch_size / count)
}

/// The metrics that a training wrote.
#[derive(Debug)]
pub struct Metrics {
    name: String,
    files: Vec<PathBuf>,
}

impl Metrics {
    /// All events of this name, those of rank 0 first. Fails for a missing file, and for an event that is not an `E`.
    pub fn events<E: DeserializeOwned>(&self, name: &str) -> Result<Vec<E>> {
        Ok(self.events_by_rank(name)?.into_iter().flatten().collect())
    }

    /// All events of this name, in one list for each rank.
    pub fn events_by_rank<E: DeserializeOwned>(&self, name: &str) -> Result<Vec<Vec<E>>> {
        self.files.iter().map(|file| Ok(read_events(file, name)?)).collect()
    }

    /// The event `device` of each device, in order. Fails as [`events`](Self::events), and for another number of them.
    pub fn devices(&self, expected: usize) -> Result<Vec<DeviceReport>> {
        let devices = self.events("device")?;
        let (name, found) = (&self.name, devices.len());
        ensure!(found == expected, "{name} reported on {found} devices instead of {expected}");
        Ok(devices)
    }
}
