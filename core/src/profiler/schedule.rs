//! Which steps of a training to record: `torch.profiler.schedule`.

use super::Profiler;
use crate::{Error, Result, check, data::Shard};
use std::fs;
use std::path::{Path, PathBuf};
use tch_parallel_base::options;

options! {
    /// `torch.profiler.schedule(wait=…, warmup=0, active=…, repeat=1)`; the defaults are ours.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Schedule {
        /// How many steps to leave out: the first ones allocate, and order the buckets.
        pub wait: usize = 2,
        /// How many steps to record after them, at least 1.
        pub active: usize = 3,
    }
}

/// Records some steps of a training, on every rank in a file of its own, `rank0.json` and so on.
///
/// ```
/// use tch::{Tensor, kind::FLOAT_CPU};
/// use tch_parallel::data::Shard;
/// use tch_parallel::profiler::{Schedule, ScheduledProfiler};
///
/// let dir = tempfile::tempdir()?;
/// let mut profiler = ScheduledProfiler::new(Some(dir.path()), Shard::WHOLE, Schedule::default())?;
/// for _ in 0..10 {
///     let _ = Tensor::ones([2], FLOAT_CPU).exp();
///     profiler.step()?;
/// }
/// assert_eq!(std::fs::read_to_string(dir.path().join("rank0.json"))?.matches("aten::exp\"").count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ScheduledProfiler {
    /// `None` if nothing is recorded.
    path: Option<PathBuf>,
    schedule: Schedule,
    steps: usize,
    running: Option<Profiler>,
}

impl ScheduledProfiler {
    /// Creates `dir`; `rank` is usually the process group, `&group`. Without `dir` it records nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step is to be recorded, [`Error::Io`] if the directory cannot be
    /// created, and those of [`Profiler::start`] if the first step is recorded.
    pub fn new(dir: Option<&Path>, rank: impl Into<Shard>, schedule: Schedule) -> Result<Self> {
        check(schedule.active > 0, "active", 0, "at least 1 step")?;
        if let Some(dir) = dir {
            fs::create_dir_all(dir).map_err(Error::io("create directory", dir))?;
        }
        let path = dir.map(|dir| dir.join(format!("rank{}.json", rank.into().rank())));
        let mut profiler = ScheduledProfiler { path, schedule, steps: 0, running: None };
        profiler.begin_if_due()?;
        Ok(profiler)
    }

    /// Ends a step of the training: `profile.step()`.
    pub fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps == self.schedule.wait + self.schedule.active
            && let Some(running) = self.running.take()
        {
            running.stop()?;
        }
        self.begin_if_due()
    }

    fn begin_if_due(&mut self) -> Result<()> {
        if self.steps == self.schedule.wait
            && let Some(path) = &self.path
        {
            self.running = Some(Profiler::start(path)?);
        }
        Ok(())
    }
}

impl Drop for ScheduledProfiler {
    /// A training that ends early leaves what there is.
    fn drop(&mut self) {
        let _ = self.running.take().map(Profiler::stop);
    }
}
