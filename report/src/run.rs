//! What a training loop reports: metrics, curves, traces, times and the progress bar in one object.

use crate::pass::Sent;
use crate::{Batches, Meters, MetricsLog, Pass, ReportArgs, Step, Timing, progress_bar};
use anyhow::Result;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use tch::Tensor;
use tch_parallel::Event;
use tch_parallel::data::{DataLoader, Dataset};
use tch_parallel::distributed::ProcessGroup;
use tch_parallel::profiler::ScheduledProfiler;

/// How far a training has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch to continue with.
    pub epoch: u64,
    /// The steps of that epoch that are done.
    pub step: usize,
    /// The samples that all ranks together have had in it.
    pub samples: usize,
}

/// Reports a training: the numbers of every step, the first of which is the loss, curves, a trace,
/// times, and a progress bar.
///
/// The host does not wait for the numbers of each step, because the GPU would then wait for the host.
/// It reads them once they have arrived, and waits only before something is printed or saved.
///
/// ```no_run
/// # use tch::nn::{ModuleT, VarStore};
/// # use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, Split};
/// # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # use report::{Progress, ReportArgs};
/// # fn train(args: &ReportArgs) -> anyhow::Result<()> {
/// # let group = ProcessGroup::from_env()?;
/// # let vs = VarStore::new(group.device());
/// # let linear = tch::nn::linear(vs.root(), 784, 10, Default::default());
/// # let model = DistributedDataParallel::new(linear, &vs, &group)?;
/// # let mut optimizer = Sgd::new(&vs, SgdOptions::default())?;
/// # let sampler = DistributedSampler::new(&group, 42);
/// # let loader = DataLoader::new(Mnist::embedded(Split::Train)?, sampler, 128)?;
/// let mut run = args.start(&group, 0.01, Progress::default())?;
/// for epoch in run.progress().epoch..10 {
///     for batch in run.epoch(&loader)? {
///         let (images, labels) = batch?;
///         let loss = model.f_forward_t(&images, true)?.cross_entropy_for_logits(&labels);
///         optimizer.zero_grad()?;
///         model.backward(&loss)?;
///         optimizer.step()?;
///         run.step([&loss], labels.size()[0])?;
///     }
///     let [loss] = run.end_epoch()?;
///     println!("epoch {epoch}: the mean loss of all ranks is {loss}");
/// }
/// run.end()
/// # }
/// ```
#[derive(Debug)]
pub struct Run<'a, const N: usize> {
    group: &'a ProcessGroup,
    lr: f64,
    metrics: MetricsLog,
    profiler: ScheduledProfiler,
    timing: Timing,
    progress: Progress,
    /// Of the current epoch, like the bar.
    pass: Pass<N>,
    bar: ProgressBar,
    every: Option<usize>,
    max_steps: Option<usize>,
}

impl ReportArgs {
    /// Starts to report a training, from `progress` on. `lr` is the learning rate that the error for a
    /// loss that is not finite names.
    ///
    /// # Errors
    /// Those of [`metrics`](Self::metrics) and [`profiler`](Self::profiler).
    pub fn start<'a, const N: usize>(
        &self,
        group: &'a ProcessGroup,
        lr: f64,
        progress: Progress,
    ) -> Result<Run<'a, N>> {
        Ok(Run {
            group,
            lr,
            metrics: self.metrics(group)?,
            profiler: self.profiler(group)?,
            timing: Timing::new(),
            progress,
            pass: Pass::default(),
            bar: ProgressBar::hidden(),
            every: None,
            max_steps: None,
        })
    }
}

impl<'a, const N: usize> Run<'a, N> {
    /// A run that prints a line every `every` steps instead of drawing a bar, and ends each epoch
    /// after at most `max_steps`.
    pub fn with_lines(self, every: usize, max_steps: Option<usize>) -> Self {
        Run { every: Some(every), max_steps, ..self }
    }

    /// A run that goes on with the meters of an epoch that was interrupted.
    pub fn with_meters(self, meters: Meters<N>) -> Self {
        Run { pass: self.pass.resume(0, meters), ..self }
    }

    /// How far the training has come.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Begins or resumes the current epoch: its remaining batches, on the group's device.
    ///
    /// # Errors
    /// Those of [`DataLoader::epoch_after`].
    pub fn epoch<'l, D: Dataset + 'static>(
        &mut self,
        loader: &'l DataLoader<D>,
    ) -> Result<Batches<'l, D::Batch>> {
        let Progress { epoch, step, samples } = self.progress;
        self.pass = Pass::new(self.every, self.max_steps).resume(step, *self.pass.meters());
        let batches = loader.epoch_after(epoch, samples)?;
        let batches = self.pass.batches(batches, self.group.device());
        if self.every.is_none() {
            self.bar = progress_bar(batches.size_hint().0 as u64, self.group.rank());
        }
        Ok(batches)
    }

    /// Reports a step by its numbers, the first of which is the loss, and the size of this rank's
    /// batch. Returns whether a line is due, for which the numbers of all steps have arrived.
    ///
    /// # Errors
    /// For a loss that is not finite, of this step or an earlier one, and those of
    /// [`Pass::step`] and [`MetricsLog::log`].
    pub fn step(&mut self, numbers: [&Tensor; N], samples: i64) -> Result<bool> {
        if let Some(begun) = self.pass.begun() {
            self.timing.step_between(begun, Event::record(self.group.device())?)?;
        }
        self.profiler.step()?;
        let is_due = self.pass.push(numbers, samples)?;
        self.progress.step += 1;
        self.progress.samples += samples as usize * self.group.world_size();
        self.take_arrived(is_due || (self.every.is_some() && !self.is_mid_epoch()))?;
        Ok(is_due)
    }

    /// Whether more steps of this epoch follow.
    pub fn is_mid_epoch(&self) -> bool {
        self.pass.done < self.pass.steps
    }

    /// Waits for the numbers of all steps, which may still be on their way from a GPU.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn wait(&mut self) -> Result<()> {
        self.take_arrived(true)
    }

    fn take_arrived(&mut self, waits: bool) -> Result<()> {
        for (Sent { step, .. }, numbers) in self.pass.arrived(waits)? {
            let loss = numbers.first().copied().unwrap_or(f64::NAN);
            let event = Step { epoch: self.progress.epoch, step, loss: loss as f32 };
            self.metrics.log("step", &event)?;
            event.expect_finite_loss(self.lr, self.group)?;
            self.bar.set_message(format!("training batch_loss={loss:.4}"));
            self.bar.inc(1);
        }
        Ok(())
    }

    /// The pass over the current epoch: its meters, and its position.
    pub fn pass(&self) -> &Pass<N> {
        &self.pass
    }

    /// Ends an epoch. Returns the means over the samples of all ranks. A collective.
    ///
    /// # Errors
    /// Those of [`step`](Self::step) and of a collective.
    pub fn end_epoch(&mut self) -> Result<[f64; N]> {
        self.wait()?;
        self.bar.finish_and_clear();
        self.progress = Progress { epoch: self.progress.epoch + 1, ..Default::default() };
        let means = self.pass.all_reduce(self.group)?;
        self.pass = Pass::default();
        Ok(means)
    }

    /// Writes another event to the metrics.
    ///
    /// # Errors
    /// Those of [`MetricsLog::log`].
    pub fn log(&mut self, event: &str, fields: &impl Serialize) -> Result<()> {
        Ok(self.metrics.log(event, fields)?)
    }

    /// Writes how long the training took.
    ///
    /// # Errors
    /// Those of [`MetricsLog::log`].
    pub fn end(mut self) -> Result<()> {
        Ok(self.metrics.log("end", &self.timing.summary())?)
    }
}
