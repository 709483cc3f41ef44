//! Flags that several programs have, and what the user gives them.

use crate::{MetricsLog, eprintln, say};
use clap::{ValueEnum, builder::PossibleValue, builder::RangedU64ValueParser, value_parser};
use std::{ffi::OsString, io, path::Path, path::PathBuf, time::Duration};
use tch::Device;
use tch_parallel::distributed::{Backend, DeviceChoice, Env, ProcessGroup, ProcessGroupOptions};
use tch_parallel::profiler::{Schedule, ScheduledProfiler};
use tch_parallel::{Error, Result, cuda_is_built, data::Shard};
use tch_parallel_contract::gpus;

/// Where a rank trains and how it meets the others.
#[derive(Debug, Clone, clap::Args)]
pub struct ProcessGroupArgs {
    /// Device to train on: cpu, cuda or auto. cuda requires the feature `cuda`, with which `cargo
    /// launch` and `cargo xtask run` build on a machine with a GPU.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Backend of the collectives: gloo or nccl [default: nccl for cuda, else gloo].
    #[arg(long)]
    backend: Option<Backend>,
    /// Seconds to wait for another rank [default: 1800 with gloo, 600 with nccl].
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    timeout: Option<u64>,
}

impl ProcessGroupArgs {
    /// This process's device, which it keeps if its rank changes. Fails as [`DeviceChoice::of_worker`], and for an
    /// invalid environment.
    pub fn device(&self) -> Result<Device> {
        self.device.of_worker(Env::read()?.map_or(0, |env| env.local_rank))
    }

    /// What [`init_process_group`](tch_parallel::distributed::init_process_group) takes. If `auto`
    /// leaves GPUs unused, rank 0 says so on stderr.
    pub fn options(&self) -> ProcessGroupOptions {
        // An invalid environment is the process group's to refuse.
        if Env::read().ok().flatten().is_none_or(|env| env.rank == 0) {
            say_unused_gpus(self.device);
        }
        ProcessGroupOptions {
            backend: self.backend,
            device: self.device,
            timeout: self.timeout.map(Duration::from_secs),
        }
    }
}

/// Says so on stderr if `auto` leaves GPUs unused. Of several workers, the first should call this.
pub fn say_unused_gpus(device: DeviceChoice) {
    if let Some(line) = unused_gpus(device, cuda_is_built(), gpus()) {
        eprintln!("{line}");
    }
}

/// What there is to say if a program without CUDA chooses the CPU on a machine with GPUs.
fn unused_gpus(device: DeviceChoice, cuda_is_built: bool, gpus: usize) -> Option<&'static str> {
    let unused = device == DeviceChoice::Auto && !cuda_is_built && gpus > 0;
    unused.then_some(
        "training on the CPU: this machine has a GPU, but this program was built without the \
         feature `cuda`; `cargo launch` and `cargo xtask run` build with it",
    )
}

/// What a training writes for others to look at.
#[allow(rustdoc::bare_urls, reason = "--help shows the text as it is")]
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReportArgs {
    /// Write the loss of every step, and whatever else is measured, to this directory as JSON
    /// lines, one file per rank. Each start begins these files anew, also one that resumes.
    #[arg(long, value_name = "DIR")]
    metrics: Option<PathBuf>,
    /// Write the numbers of rank 0's metrics to this directory for TensorBoard.
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// Write a trace of the third to fifth step to this directory, one file per rank, for https://ui.perfetto.dev.
    #[arg(long, value_name = "DIR")]
    profile: Option<PathBuf>,
    #[arg(skip)]
    adds: bool,
}

impl ReportArgs {
    /// The same, adding to the metrics that are there if the training `has_begun` already, with other ranks perhaps.
    pub fn going_on(&self, has_begun: bool) -> ReportArgs {
        ReportArgs { adds: has_begun, ..self.clone() }
    }

    /// Where to log the metrics; `rank` is usually the process group, `&group`.
    pub fn metrics(&self, rank: impl Into<Shard>) -> Result<MetricsLog> {
        let metrics = if self.adds { MetricsLog::open } else { MetricsLog::create };
        let log = metrics(self.metrics.as_deref(), rank)?;
        log.with_tensorboard(self.tensorboard.as_deref())
    }

    /// What to tell when a step has ended.
    pub fn profiler(&self, rank: impl Into<Shard>) -> Result<ScheduledProfiler> {
        ScheduledProfiler::new(self.profile.as_deref(), rank, Schedule::default())
    }
}

/// What a training resumes from: `--resume FILE` or `--resume auto`. With `auto`, the same command starts a training
/// and continues it, so a launcher or a batch system can start it again after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// The training's own checkpoint, if there is one.
    Auto,
    /// This checkpoint. A file with the name `auto` is `./auto`.
    File(PathBuf),
}

impl From<OsString> for Resume {
    fn from(value: OsString) -> Self {
        if value == "auto" { Resume::Auto } else { Resume::File(value.into()) }
    }
}

impl Resume {
    /// The checkpoint that it names, whether it exists or not. `own` is where this training saves.
    pub fn named<'a>(&'a self, own: &'a Path) -> &'a Path {
        match self {
            Resume::Auto => own,
            Resume::File(file) => file,
        }
    }

    /// The checkpoint to load; `None` for a fresh start, which rank 0 then announces. `own` is where this training
    /// saves. A collective: rank 0 looks for the file, and every rank fails with [`Error::Io`] if it may not.
    pub fn file<'a>(&'a self, own: &'a Path, group: &ProcessGroup) -> Result<Option<&'a Path>> {
        if let Resume::File(file) = self {
            return Ok(Some(file));
        }
        let mut exists = Ok(false);
        if group.rank() == 0 {
            exists = own.try_exists().map_err(|error| error.to_string());
        }
        group.broadcast_object(&mut exists, 0)?;
        let exists = exists.map_err(|error| Error::io("look for", own)(io::Error::other(error)))?;
        if !exists {
            say(group, format!("no checkpoint at {} yet: a fresh start", own.display()));
        }
        Ok(exists.then_some(own))
    }
}

/// The parser of a flag's number, at least 1, and within 32 bits, so that two can be multiplied:
/// `#[arg(long, value_parser = report::positive())]`.
pub fn positive() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=u32::MAX.into())
}

/// The value of a flag, as the user writes it.
///
/// ```
/// #[derive(Clone, clap::ValueEnum)]
/// enum Method {
///     DataParallel,
/// }
///
/// assert_eq!(report::flag_value(&Method::DataParallel), "data-parallel");
/// ```
pub fn flag_value(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.as_ref().map_or("", PossibleValue::get_name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gpus_that_a_program_without_cuda_would_take_are_missed() {
        let line = unused_gpus(DeviceChoice::Auto, false, 1).unwrap();
        assert!(line.contains("built without the feature `cuda`"), "{line}");
        assert!(line.contains("`cargo xtask run`"), "{line}");
        for (device, is_built, gpus) in [
            (DeviceChoice::Cpu, false, 1),
            (DeviceChoice::Cuda, false, 1),
            (DeviceChoice::Auto, true, 1),
            (DeviceChoice::Auto, false, 0),
        ] {
            assert_eq!(unused_gpus(device, is_built, gpus), None);
        }
    }
}
