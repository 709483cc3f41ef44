//! What a training loop reports: metrics, curves, traces, times and the progress bar in one object.

use crate::{InFlight, MetricsLog, ReportArgs, Step, Timing, progress_bar};
use anyhow::Result;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use tch::Tensor;
use tch_parallel::data::{DataLoader, Dataset, Epoch};
use tch_parallel::distributed::{AverageMeter, ProcessGroup};
use tch_parallel::profiler::ScheduledProfiler;
use tch_parallel::{Event, Tensors};

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

/// Reports a training: the loss of every step, curves, a trace, times, and a progress bar.
///
/// The host does not wait for the loss of each step, because the GPU would then wait for the host. It
/// reads a loss once it has arrived, and waits only before something is printed or saved.
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
///         run.step(&loss, labels.size()[0])?;
///     }
///     println!("epoch {epoch}: the mean loss of all ranks is {}", run.end_epoch()?);
/// }
/// run.end()
/// # }
/// ```
#[derive(Debug)]
pub struct Run<'a> {
    group: &'a ProcessGroup,
    lr: f64,
    metrics: MetricsLog,
    profiler: ScheduledProfiler,
    timing: Timing,
    progress: Progress,
    /// The steps of the current epoch, to which the fields below belong as well.
    steps: usize,
    begun: Begun,
    in_flight: InFlight<(usize, usize), 1>,
    loss: AverageMeter,
    bar: ProgressBar,
}

/// When the current batch arrived.
type Begun = Rc<RefCell<Option<Event>>>;

impl ReportArgs {
    /// Starts to report a training, from `progress` on. `lr` is the learning rate that the error for a
    /// loss that is not finite names.
    ///
    /// # Errors
    /// Those of [`metrics`](Self::metrics) and [`profiler`](Self::profiler).
    pub fn start<'a>(
        &self,
        group: &'a ProcessGroup,
        lr: f64,
        progress: Progress,
    ) -> Result<Run<'a>> {
        Ok(Run {
            group,
            lr,
            metrics: self.metrics(group)?,
            profiler: self.profiler(group)?,
            timing: Timing::new(),
            progress,
            steps: 0,
            begun: Begun::default(),
            in_flight: InFlight::default(),
            loss: AverageMeter::default(),
            bar: ProgressBar::hidden(),
        })
    }
}

impl Run<'_> {
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
        let Progress { epoch, samples, .. } = self.progress;
        let batches = loader.epoch_after(epoch, samples)?.to(self.group.device());
        let left = batches.size_hint().0;
        self.steps = self.progress.step + left;
        self.loss = AverageMeter::default();
        self.bar = progress_bar(left as u64, self.group.rank());
        Ok(Batches { batches, begun: Rc::clone(&self.begun), device: self.group.device() })
    }

    /// Reports a step. `samples` is the size of this rank's batch.
    ///
    /// # Errors
    /// For a loss that is not finite, of this step or an earlier one, and those of
    /// [`MetricsLog::log`].
    pub fn step(&mut self, loss: &Tensor, samples: i64) -> Result<()> {
        if let Some(begun) = self.begun.take() {
            self.timing.step_between(begun, Event::record(self.group.device())?)?;
        }
        self.profiler.step()?;
        let samples = samples as usize;
        self.in_flight.push((self.progress.step, samples), [loss])?;
        self.progress.step += 1;
        self.progress.samples += samples * self.group.world_size();
        self.take_arrived(false)
    }

    /// Whether more steps of this epoch follow.
    pub fn is_mid_epoch(&self) -> bool {
        self.progress.step < self.steps
    }

    /// Waits for the losses of all steps, which may still be on their way from a GPU.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn wait(&mut self) -> Result<()> {
        self.take_arrived(true)
    }

    fn take_arrived(&mut self, waits: bool) -> Result<()> {
        for ((step, samples), [loss]) in self.in_flight.arrived(waits)? {
            let event = Step { epoch: self.progress.epoch, step, loss: loss as f32 };
            self.metrics.log("step", &event)?;
            event.expect_finite_loss(self.lr, self.group)?;
            self.loss.update(loss, samples);
            self.bar.set_message(format!("training batch_loss={loss:.4}"));
            self.bar.inc(1);
        }
        Ok(())
    }

    /// Ends an epoch. Returns the mean loss over the samples of all ranks. A collective.
    ///
    /// # Errors
    /// Those of [`step`](Self::step) and of a collective.
    pub fn end_epoch(&mut self) -> Result<f64> {
        self.wait()?;
        self.bar.finish_and_clear();
        self.progress = Progress { epoch: self.progress.epoch + 1, ..Default::default() };
        Ok(self.loss.all_reduce(self.group)?)
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

/// The batches of an epoch, see [`Run::epoch`].
#[derive(Debug)]
pub struct Batches<'l, B> {
    batches: Epoch<'l, B>,
    begun: Begun,
    device: tch::Device,
}

impl<B: Tensors + Send + 'static> Iterator for Batches<'_, B> {
    type Item = tch_parallel::Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.and_then(|batch| {
            self.begun.replace(Some(Event::record(self.device)?));
            Ok(batch)
        }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.batches.size_hint()
    }
}
