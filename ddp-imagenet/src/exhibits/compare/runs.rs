//! One training in processes of its own, and what it measured.

use super::args::{CompareArgs, Shares};
use crate::exhibits::train_cifar::{EpochEvent, Method, OptimizerKind, StepEvent};
use anyhow::Result;
use report::comparison::{self, Comparison, Training, Workers};
use report::{DeviceReport, Meter};
use std::ffi::OsString;
use std::fmt;
use tch_parallel::LogicalDevice;

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

/// What a run measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    pub run: Run,
    /// Images in a batch of each device.
    pub images: usize,
    pub devices: Vec<DeviceReport>,
    /// Batches of a whole epoch.
    pub batches: usize,
    /// The slowest rank's median, by the article's clock, which starts when the batch is there.
    pub batch_seconds: f64,
    /// The slowest rank's median of the wait for a batch.
    pub fetch_seconds: f64,
    /// Only if a whole epoch was run.
    pub epoch_seconds: Option<f64>,
}

impl Measured {
    /// Images in a batch of all devices together.
    pub fn batch_size(&self) -> usize {
        self.images * self.devices.len()
    }

    /// For a batch, including the wait for it.
    fn seconds(&self) -> f64 {
        self.batch_seconds + self.fetch_seconds
    }

    /// Including the wait for batches.
    pub fn images_per_second(&self) -> f64 {
        self.batch_size() as f64 / self.seconds()
    }

    /// How much of the time a batch is waited for.
    pub fn fetch_percent(&self) -> f64 {
        100.0 * (self.fetch_seconds / self.seconds())
    }

    /// How long an epoch takes: measured, or else projected from the batches that were run.
    pub fn epoch_seconds(&self) -> f64 {
        self.epoch_seconds.unwrap_or(self.batches as f64 * self.seconds())
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

/// Trains by `run`, and shows every line on stderr as it comes.
///
/// # Errors
/// If a process fails or takes too long. No process is left then.
pub fn train(args: &CompareArgs, comparison: &Comparison, run: Run) -> Result<Measured> {
    let Run { method, optimizer } = run;
    let Shares { device, single, device_workers } = args.shares()?;
    let (all, data) = (&args.devices, &args.data);
    let on_cpu = matches!(all.first(), LogicalDevice::Cpu(_));
    let images = if method == Method::Single { single } else { device };
    let (devices, batch_size, workers) = match method {
        // Logical devices are all alike: a list of one.
        Method::Single if on_cpu => ("cpu:1".into(), single, data.workers),
        Method::Single => (all.first().to_string(), single, data.workers),
        Method::DataParallel | Method::Ddp => (all.to_string(), data.batch_size, data.workers),
        // Its flags are those of one process.
        Method::Apex => (all.to_string(), device, device_workers),
    };
    let flags = [
        format!("--arch={}", args.arch),
        format!("--method={method}"),
        format!("--optimizer={}", optimizer.to_string().to_lowercase()),
        format!("--devices={devices}"),
        format!("--batch-size={batch_size}"),
        format!("--workers={workers}"),
        format!("--steps={}", args.steps),
        format!("--seed={}", args.seed),
    ];
    let flags = flags.map(OsString::from).into_iter().chain(data.source_flags());
    let workers =
        if method.is_distributed() { Workers::Ranks(all.len()) } else { Workers::Process };
    let training = Training {
        name: run.to_string(),
        flags: std::iter::once("train-cifar".into()).chain(flags).collect(),
        workers,
        single_threaded: on_cpu,
    };
    let metrics = comparison.run(&training, |line| eprintln!("{run:<20}| {line}"))?;

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
        devices: metrics.devices(if method == Method::Single { 1 } else { all.len() })?,
        batches: epochs.first().map_or(0, |epoch| epoch.batches),
        batch_seconds: slowest(|step| step.batch_seconds),
        fetch_seconds: slowest(|step| step.fetch_seconds),
        epoch_seconds: whole.map(|epoch| epoch.seconds).reduce(f64::max),
    })
}

/// 0 if there are no values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
