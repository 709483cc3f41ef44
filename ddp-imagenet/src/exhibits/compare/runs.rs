//! A training of some batches in processes of its own, and what its metrics say.

use super::args::{CompareArgs, Shares};
use crate::exhibits::train_cifar::{EpochEvent, Method, OptimizerKind, StepEvent};
use anyhow::{Result, ensure};
use report::comparison::{self, Comparison, Metrics, Training, Workers};
use report::{DeviceReport, Meter};
use std::ffi::OsString;
use std::fmt;
use tch_parallel::LogicalDevice;
use tch_parallel::data::Dataset;

/// A training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub method: Method,
    pub optimizer: OptimizerKind,
}

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

impl comparison::Measured for Measured {
    fn name(&self) -> String {
        self.run.to_string()
    }

    fn devices(&self) -> &[DeviceReport] {
        &self.devices
    }
}

/// Runs this program with everything but method and optimizer given.
pub struct Runs<'a> {
    args: &'a CompareArgs,
    comparison: &'a Comparison,
    shares: Shares,
}

impl<'a> Runs<'a> {
    /// # Errors
    /// For flags that no training could work with, and for data that is not there.
    pub fn new(args: &'a CompareArgs, comparison: &'a Comparison) -> Result<Self> {
        let shares = args.shares()?;
        let (train_set, _) = args.data.load(args.seed)?;
        let (images, needed) = (train_set.len(), shares.total.max(shares.single));
        ensure!(
            images >= 3 * needed,
            "the data set has {images} images, which is less than three batches of {needed}; a \
             smaller --batch-size helps"
        );
        Ok(Self { args, comparison, shares })
    }

    /// Trains, and shows every line on stderr as it comes.
    ///
    /// # Errors
    /// If a process fails or takes too long; none is left then.
    pub fn run(&self, run: Run) -> Result<Measured> {
        let Shares { total, device, single, workers, device_workers } = self.shares;
        let all = &self.args.devices;
        let on_cpu = matches!(all.first(), LogicalDevice::Cpu(_));
        let (devices, batch_size, workers) = match run.method {
            // Logical devices are all alike: a list of one.
            Method::Single if on_cpu => ("cpu:1".into(), single, workers),
            Method::Single => (all.first().to_string(), single, workers),
            Method::DataParallel | Method::Ddp => (all.to_string(), total, workers),
            // Its flags are those of one process.
            Method::Apex => (all.to_string(), device, device_workers),
        };
        let flags = [
            format!("--arch={}", self.args.arch),
            format!("--method={}", run.method),
            format!("--optimizer={}", run.optimizer.to_string().to_lowercase()),
            format!("--devices={devices}"),
            format!("--batch-size={batch_size}"),
            format!("--workers={workers}"),
            format!("--steps={}", self.args.steps),
            format!("--seed={}", self.args.seed),
        ];
        let mut command_line = vec![OsString::from("train-cifar")];
        command_line.extend(self.args.data.source_flags());
        command_line.extend(flags.map(OsString::from));
        let workers = match run.method {
            Method::Single | Method::DataParallel => Workers::Process,
            Method::Ddp | Method::Apex => Workers::Ranks(all.len()),
        };
        let (name, single_threaded) = (run.to_string(), on_cpu);
        let training = Training { name, flags: command_line, workers, single_threaded };
        let metrics = self.comparison.run(&training, |line| eprintln!("{run:<20}| {line}"))?;
        self.read(run, &metrics)
    }

    /// What the ranks have written, of which the slowest counts.
    fn read(&self, run: Run, metrics: &Metrics) -> Result<Measured> {
        let (images, devices) = match run.method {
            Method::Single => (self.shares.single, 1),
            _ => (self.shares.device, self.args.devices.len()),
        };
        let steps = metrics.events_by_rank::<StepEvent>("step")?;
        let slowest = |seconds: fn(&StepEvent) -> f64| {
            let of_rank =
                |steps: &Vec<_>| median(steps.iter().skip(Meter::WARM_UP as usize).map(seconds));
            steps.iter().map(of_rank).fold(0.0, f64::max)
        };
        let epochs = metrics.events::<EpochEvent>("epoch")?;
        let whole = epochs.iter().filter(|epoch| epoch.taken == epoch.batches);
        Ok(Measured {
            run,
            images,
            devices: metrics.devices(devices)?,
            batches: epochs.first().map_or(0, |epoch| epoch.batches),
            batch_seconds: slowest(|step| step.batch_seconds),
            fetch_seconds: slowest(|step| step.fetch_seconds),
            epoch_seconds: whole.map(|epoch| epoch.seconds).reduce(f64::max),
        })
    }
}

/// The one in the middle; 0 where there is none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
