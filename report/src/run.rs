//! What a training loop reports: metrics, curves, traces, times and the progress bar in one object.

use crate::{Batches, Meter, Meters, MetricsLog, Pass, ReportArgs, Step, Timing};
use crate::{println, progress_bar};
use anyhow::Result;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::{array::from_fn, mem::take, rc::Rc, time::Duration};
use tch::{Device, Tensor, nn::VarStore};
use tch_parallel::data::{DataLoader, Dataset};
use tch_parallel::{Event, distributed::ProcessGroup, profiler::ScheduledProfiler};

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

/// Reports a training: the numbers of every step, first the loss, curves, a trace, times, and a progress bar.
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
    device: Device,
    /// What helps if a loss is not finite. `None` if that is of no interest.
    advice: Option<String>,
    metrics: MetricsLog,
    profiler: ScheduledProfiler,
    timing: Timing,
    progress: Progress,
    /// Of the current epoch, like the bar.
    pass: Pass<N>,
    bar: ProgressBar,
    every: Option<usize>,
    max_steps: Option<usize>,
    /// If there are any. The numbers of a step are then those of all ranks.
    virtual_ranks: Option<usize>,
    meter: Option<Meter>,
    /// Those of the current step.
    fields: Fields,
    /// Those of the steps whose numbers are on their way, oldest first.
    sent: VecDeque<Fields>,
    mark_seconds: f64,
}

/// The step of an event, and what this has beside the fields of [`Step`].
#[derive(Debug, Default)]
struct Fields {
    step: usize,
    values: BTreeMap<&'static str, f64>,
    mark: Option<(&'static str, Event)>,
    begun: Option<Rc<Event>>,
}

#[derive(Debug, Serialize)]
struct StepEvent {
    #[serde(flatten)]
    step: Step,
    #[serde(flatten)]
    fields: BTreeMap<&'static str, f64>,
}

impl ReportArgs {
    /// Starts to report a training, from `progress` on. The error for a loss that is not finite names `lr`.
    pub fn start<'a, const N: usize>(
        &self,
        group: &'a ProcessGroup,
        lr: f64,
        progress: Progress,
    ) -> Result<Run<'a, N>> {
        Ok(Run {
            group,
            device: group.device(),
            advice: Some(format!("try a smaller --lr than {lr}")),
            metrics: self.metrics(group)?,
            profiler: self.profiler(group)?,
            timing: Timing::default(),
            progress,
            pass: Pass::default(),
            bar: ProgressBar::hidden(),
            every: None,
            max_steps: None,
            virtual_ranks: None,
            meter: None,
            fields: Fields::default(),
            sent: VecDeque::new(),
            mark_seconds: 0.0,
        })
    }
}

impl<'a, const N: usize> Run<'a, N> {
    /// A run that prints a line every `every` steps instead of a bar, with epochs of at most `max_steps`.
    pub fn with_lines(self, every: usize, max_steps: Option<usize>) -> Self {
        Run { every: Some(every), max_steps, ..self }
    }

    /// A run that goes on with the meters of an epoch that was interrupted.
    pub fn with_meters(self, meters: Meters<N>) -> Self {
        Run { pass: self.pass.resume(0, meters), ..self }
    }

    /// A run whose steps have numbers of this many virtual ranks together, and the batch size of one.
    pub fn with_virtual_ranks(self, virtual_ranks: Option<usize>) -> Self {
        Run { virtual_ranks, ..self }
    }

    /// A run on the devices of this meter, which measures every step.
    pub fn with_device_meter(self, meter: Meter) -> Self {
        Run { device: meter.home().into(), meter: Some(meter), ..self }
    }

    /// A run that ends with this advice if a loss is not finite, or with `None` goes on.
    pub fn with_advice(self, advice: Option<&str>) -> Self {
        Run { advice: advice.map(str::to_owned), ..self }
    }

    /// How far the training has come.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Begins or resumes the current epoch: its remaining batches, on the group's device or the first of the meter. Not
    /// for a batch sampler: it counts batches, while the progress counts samples.
    pub fn epoch<'l, D: Dataset + 'static>(
        &mut self,
        loader: &'l DataLoader<D>,
    ) -> Result<Batches<'l, D::Batch>> {
        let Progress { epoch, step, samples } = self.progress;
        self.pass = Pass::new(self.every, self.max_steps).resume(step, *self.pass.meters());
        let batches = loader.epoch_after(epoch, samples)?;
        let batches = self.pass.batches(batches, self.device);
        if self.every.is_none() {
            self.bar = progress_bar(batches.size_hint().0 as u64, self.group.rank());
        }
        if let Some(meter) = &mut self.meter {
            meter.begin_step()?;
        }
        Ok(batches)
    }

    /// A seed for the current step, as far from the next one's as there are virtual ranks.
    pub fn step_seed(&self, seed: i64) -> i64 {
        let (done, steps) = self.pass.position();
        let step = self.progress.epoch as usize * steps + done;
        seed.wrapping_add((step * self.virtual_ranks.unwrap_or(1)) as i64)
    }

    /// Adds a number to the event of the current step.
    pub fn field(&mut self, name: &'static str, value: f64) {
        self.fields.values.insert(name, value);
    }

    /// Adds the seconds from the arrival of the current step's batch to here to its event.
    pub fn mark(&mut self, name: &'static str) -> Result<()> {
        self.fields.mark = Some((name, Event::record(self.device)?));
        Ok(())
    }

    /// The seconds to the [`mark`](Self::mark) of the last step whose numbers have arrived.
    pub fn mark_seconds(&self) -> f64 {
        self.mark_seconds
    }

    /// Reports a step by its numbers, the first of which is the loss, and the size of this rank's batch. Returns
    /// whether a line is due, for which the numbers of all steps have arrived. Fails as [`Pass::step`] and
    /// [`MetricsLog::log`], and for a loss that is not finite, of this step or an earlier one.
    pub fn step(&mut self, numbers: [&Tensor; N], samples: i64) -> Result<bool> {
        // Copied to the device of the events, they arrive after these. Asking for a copy where a number
        // is already would make the host wait for it.
        let there = |number: &Tensor| match number.device() == self.device {
            true => Ok(number.shallow_clone()),
            false => number.f_to_device(self.device),
        };
        let numbers = numbers.into_iter().map(there).collect::<Result<Vec<_>, _>>()?;
        let begun = self.pass.begun().map(Rc::new);
        if let Some(begun) = &begun {
            self.timing.step_between(Rc::clone(begun), Event::record(self.device)?)?;
        }
        if let Some(meter) = &mut self.meter {
            meter.end_step()?;
            meter.begin_step()?;
        }
        self.profiler.step()?;
        self.sent.push_back(Fields { step: self.pass.done, begun, ..take(&mut self.fields) });
        let is_due = self.pass.push(from_fn(|index| &numbers[index]), samples)?;
        self.progress.step += 1;
        let ranks = self.virtual_ranks.unwrap_or(self.group.world_size());
        self.progress.samples += samples as usize * ranks;
        self.take_arrived(is_due || (self.every.is_some() && !self.is_mid_epoch()))?;
        Ok(is_due)
    }

    /// Whether more steps of this epoch follow.
    pub fn is_mid_epoch(&self) -> bool {
        self.pass.done < self.pass.steps
    }

    /// Waits for the numbers of all steps, which may still be on their way from a GPU.
    pub fn wait(&mut self) -> Result<()> {
        self.take_arrived(true)
    }

    fn take_arrived(&mut self, waits: bool) -> Result<()> {
        for (_, numbers) in self.pass.arrived(waits)? {
            let loss = numbers.first().copied().unwrap_or(f64::NAN);
            let Fields { step, values: mut fields, mark, begun } =
                self.sent.pop_front().unwrap_or_default();
            let step = Step { epoch: self.progress.epoch, step, loss: loss as f32 };
            if let (Some((name, mark)), Some(begun)) = (mark, begun) {
                self.mark_seconds = begun.elapsed_time(&mark)?.as_secs_f64();
                fields.insert(name, self.mark_seconds);
            }
            self.metrics.log("step", &StepEvent { step, fields })?;
            if let Some(advice) = &self.advice {
                step.expect_finite_loss(advice, self.group)?;
            }
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
    pub fn end_epoch(&mut self) -> Result<[f64; N]> {
        let pass = self.end_pass()?;
        if self.virtual_ranks.is_some() {
            return Ok(pass.meters().numbers.map(|number| number.avg()));
        }
        Ok(pass.all_reduce(self.group)?)
    }

    /// Ends an epoch without the other ranks. Returns its pass, with this rank's meters.
    pub fn end_pass(&mut self) -> Result<Pass<N>> {
        self.wait()?;
        self.bar.finish_and_clear();
        self.progress = Progress { epoch: self.progress.epoch + 1, ..Default::default() };
        Ok(take(&mut self.pass))
    }

    /// Writes another event to the metrics.
    pub fn log(&mut self, event: &str, fields: &impl Serialize) -> Result<()> {
        Ok(self.metrics.log(event, fields)?)
    }

    /// Prints and writes what each device of the meter held and did. The arguments are those of [`Meter::reports`].
    pub fn report_devices(
        &mut self,
        vs: &VarStore,
        optimizer_state: usize,
        waited: Option<Duration>,
    ) -> Result<()> {
        let Some(meter) = &self.meter else { return Ok(()) };
        for report in meter.reports(vs, optimizer_state, waited, &self.timing)? {
            println!("{report}");
            self.metrics.log("device", &report)?;
        }
        Ok(())
    }

    /// Writes how long the training took.
    pub fn end(mut self) -> Result<()> {
        Ok(self.metrics.log("end", &self.timing.summary())?)
    }
}
