//! A training of some batches in processes of its own, and what its metrics say.

use super::args::{CompareArgs, Shares};
use super::method::Method;
use super::train::{EpochEvent, OptimizerKind, StepEvent};
use anyhow::{Context, Result, ensure};
use report::multiprocessing::{self, Process};
use report::read_events;
use report::{DeviceReport, Meter};
use std::env::current_exe;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use tch_parallel::data::Dataset;
use tch_parallel::{Devices, LogicalDevice};
use tempfile::TempDir;

/// A training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub method: Method,
    pub optimizer: OptimizerKind,
}

const fn run(method: Method, optimizer: OptimizerKind) -> Run {
    Run { method, optimizer }
}

/// All of them, in the article's order. DataParallel comes with Adam as well: that is what the
/// companion repository runs there, where the article speaks of SGD (S4.47).
pub const RUNS: [Run; 5] = [
    run(Method::Single, OptimizerKind::Sgd),
    run(Method::DataParallel, OptimizerKind::Sgd),
    run(Method::DataParallel, OptimizerKind::Adam),
    run(Method::Ddp, OptimizerKind::Sgd),
    run(Method::Apex, OptimizerKind::Sgd),
];

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { method, optimizer } = self;
        f.pad(&format!("{method}, {optimizer}"))
    }
}

/// What a run has shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub run: Run,
    /// In a batch, on each device.
    pub images: usize,
    /// In the order of the devices.
    pub devices: Vec<DeviceReport>,
    /// That an epoch has.
    pub batches: usize,
    /// By the article's clock, which starts when the batch is there: the median, of the slowest rank.
    pub batch_seconds: f64,
    /// For which a batch is waited: the same.
    pub fetch_seconds: f64,
    /// Of a whole epoch, if that was run.
    pub epoch_seconds: Option<f64>,
}

impl Measured {
    /// In a batch, on all devices together.
    pub fn batch_size(&self) -> usize {
        self.images * self.devices.len()
    }

    /// With the waiting for batches.
    pub fn images_per_second(&self) -> f64 {
        self.batch_size() as f64 / (self.batch_seconds + self.fetch_seconds)
    }

    /// What an epoch takes; where none was run, by the batches that were.
    pub fn epoch_seconds(&self) -> f64 {
        let projected = self.batches as f64 * (self.batch_seconds + self.fetch_seconds);
        self.epoch_seconds.unwrap_or(projected)
    }
}

/// Runs this program with everything but method and optimizer given.
pub struct Runs<'a> {
    args: &'a CompareArgs,
    devices: &'a Devices,
    shares: Shares,
    /// For what the processes write.
    directory: TempDir,
}

impl<'a> Runs<'a> {
    /// # Errors
    /// For flags that no training could work with, and for data that is not there.
    pub fn new(args: &'a CompareArgs) -> Result<Self> {
        let (devices, shares) = (args.devices()?, args.shares()?);
        let (train_set, _) = args.data.load(args.seed)?;
        let (images, needed) = (train_set.len(), shares.total.max(shares.single));
        ensure!(
            images >= 3 * needed,
            "the data set has {images} images, which is less than three batches of {needed}; a \
             smaller --batch-size helps"
        );
        let directory = tempfile::tempdir().context("cannot create a directory for metrics")?;
        Ok(Self { args, devices, shares, directory })
    }

    /// Trains, and shows every line on stderr as it comes.
    ///
    /// # Errors
    /// If a process fails or takes too long; none is left then.
    pub fn run(&self, run: Run) -> Result<Measured> {
        let metrics = self.directory.path().join("metrics");
        let command = || self.command(run, &metrics);
        let processes = if run.method.is_distributed() {
            let ranks = (0..self.devices.len()).map(|_| command()).collect::<Result<_>>()?;
            Process::ranks(&run.to_string(), ranks)?
        } else {
            vec![Process::new(run.to_string(), command()?)]
        };
        let ranks = processes.len();
        multiprocessing::run(processes, self.args.time_limit(), |_, line| {
            eprintln!("{run:<20}| {line}");
        })?;
        let ranks = (0..ranks).map(|rank| metrics.join(format!("rank{rank}.jsonl")));
        let measured = self.read(run, ranks)?;
        let expected = if run.method == Method::Single { 1 } else { self.devices.len() };
        let found = measured.devices.len();
        ensure!(found == expected, "{run} reported on {found} devices instead of {expected}");
        Ok(measured)
    }

    fn command(&self, run: Run, metrics: &Path) -> Result<Command> {
        let Run { method, optimizer } = run;
        let Shares { total, device, single, workers, device_workers } = self.shares;
        let first = self.devices.first();
        let (devices, batch_size, workers) = match method {
            Method::Single => (alone(first), single, workers),
            Method::DataParallel | Method::Ddp => (self.devices.to_string(), total, workers),
            // Its flags are those of one process.
            Method::Apex => (self.devices.to_string(), device, device_workers),
        };
        let mut command = Command::new(current_exe().context("cannot find this program")?);
        command.arg("train-cifar").args(self.args.data.flags()).args([
            format!("--arch={}", self.args.arch),
            format!("--method={method}"),
            format!("--optimizer={}", optimizer.to_string().to_lowercase()),
            format!("--devices={devices}"),
            format!("--batch-size={batch_size}"),
            format!("--workers={workers}"),
            format!("--steps={}", self.args.steps),
            format!("--seed={}", self.args.seed),
            format!("--measured-by={}", id()),
        ]);
        command.arg("--metrics").arg(metrics);
        if let LogicalDevice::Cpu(_) = first {
            // A single logical device is no larger than each of several.
            command.env("OMP_NUM_THREADS", "1");
        }
        Ok(command)
    }

    /// What the ranks have written, of which the slowest counts.
    fn read(&self, run: Run, ranks: impl Iterator<Item = PathBuf>) -> Result<Measured> {
        let images =
            if run.method == Method::Single { self.shares.single } else { self.shares.device };
        let mut measured = Measured {
            run,
            images,
            devices: Vec::new(),
            batches: 0,
            batch_seconds: 0.0,
            fetch_seconds: 0.0,
            epoch_seconds: None,
        };
        for path in ranks {
            measured.devices.extend(read_events::<DeviceReport>(&path, "device")?);
            let steps = read_events::<StepEvent>(&path, "step")?;
            let seconds = |of: fn(&StepEvent) -> f64| {
                median(steps.iter().skip(Meter::WARM_UP as usize).map(of))
            };
            measured.batch_seconds = measured.batch_seconds.max(seconds(|s| s.batch_seconds));
            measured.fetch_seconds = measured.fetch_seconds.max(seconds(|s| s.fetch_seconds));
            for EpochEvent { batches, taken, seconds, .. } in read_events(&path, "epoch")? {
                measured.batches = batches;
                let slowest = measured.epoch_seconds.unwrap_or(0.0).max(seconds);
                measured.epoch_seconds = (taken == batches).then_some(slowest);
            }
        }
        Ok(measured)
    }
}

/// A list of one device.
fn alone(device: LogicalDevice) -> String {
    match device {
        // All alike: a list of one logical device.
        LogicalDevice::Cpu(_) => "cpu:1".into(),
        cuda => cuda.to_string(),
    }
}

/// The one in the middle; 0 where there is none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
