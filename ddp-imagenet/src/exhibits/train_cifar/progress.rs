//! The companion repository's lines, and the numbers for a comparison.

use super::Args;
use crate::meter::accuracy;
use anyhow::Result;
use report::{InFlight, Meter, MetricsLog, Timing, hours, println, why_not_finite};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tch::Tensor;
use tch::nn::VarStore;
use tch_parallel::data_parallel::Trace;
use tch_parallel::distributed::{AverageMeter, ProcessGroup};
use tch_parallel::optim::Optimizer;
use tch_parallel::profiler::ScheduledProfiler;
use tch_parallel::{Devices, Event, LogicalDevice};

/// Prints how far a training is, as the companion repository does, and measures it.
///
/// Its clock is the repository's: it starts when the batch is there. The wait for the batch is
/// measured apart (S4.46). Where the repository's DDP script lets every rank print the loss of its own
/// share, here rank 0 prints that of the whole batch (S4.51).
#[derive(Debug)]
pub struct Progress<'a> {
    args: &'a Args,
    /// By a comparison: then bytes and seconds count, whatever the loss is.
    is_measured: bool,
    group: &'a ProcessGroup,
    /// The first of this process's devices.
    home: LogicalDevice,
    meter: Meter,
    metrics: MetricsLog,
    profiler: ScheduledProfiler,
    timing: Timing,
    epoch: Epoch,
}

/// The present epoch.
#[derive(Debug)]
struct Epoch {
    event: EpochEvent,
    loss: AverageMeter,
    accuracy: AverageMeter,
    begun: Instant,
    /// When the last batch was done with.
    free_since: Instant,
    in_flight: InFlight<Batch, 2>,
}

/// A batch whose numbers may still be on their way from a GPU.
#[derive(Debug)]
struct Batch {
    step: usize,
    images: usize,
    /// How long the training waited for it.
    fetch: Duration,
    begun: Event,
    ended: Event,
}

/// When the present batch was there.
#[derive(Debug)]
pub struct Begun {
    fetch: Duration,
    event: Event,
}

impl Epoch {
    fn new(epoch: u64, batches: usize) -> Self {
        let (loss, accuracy) = Default::default();
        let event = EpochEvent { epoch, batches, taken: 0, seconds: 0.0 };
        let begun = Instant::now();
        Self { event, loss, accuracy, begun, free_since: begun, in_flight: InFlight::default() }
    }
}

/// The event `step` of the metrics: a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepEvent {
    pub epoch: u64,
    pub step: usize,
    /// Of this rank's share; NaN, which becomes `null`, if the training has diverged.
    pub loss: Option<f32>,
    /// From the arrival of the batch to the end of the optimizer's step.
    pub batch_seconds: f64,
    /// How long the training waited for the batch.
    pub fetch_seconds: f64,
}

/// The event `epoch` of the metrics.
#[derive(Debug, Serialize, Deserialize)]
pub struct EpochEvent {
    pub epoch: u64,
    /// Batches of a whole epoch.
    pub batches: usize,
    /// Batches trained with.
    pub taken: usize,
    pub seconds: f64,
}

impl<'a> Progress<'a> {
    /// The progress of one of the group's ranks, a process with these devices.
    pub fn new(
        args: &'a Args,
        is_measured: bool,
        devices: &Devices,
        group: &'a ProcessGroup,
    ) -> Result<Self> {
        let metrics = args.report.metrics(group)?;
        let profiler = args.report.profiler(group)?;
        let (meter, timing, epoch) = (Meter::new(devices), Timing::new(), Epoch::new(0, 0));
        let home = devices.first();
        Ok(Self { args, is_measured, group, home, meter, metrics, profiler, timing, epoch })
    }

    /// Prints a line, on rank 0.
    pub fn say(&self, line: &str) {
        report::say(self.group, line);
    }

    /// Prints where this rank trains.
    pub fn say_device(&self, device: LogicalDevice) {
        match device {
            LogicalDevice::Cuda(index) => println!("Use GPU: {index} for training"),
            LogicalDevice::Cpu(_) => println!("Use {device} for training"),
        }
    }

    /// Prints the number of parameters.
    pub fn say_parameters(&self, vs: &VarStore) {
        let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
        self.say(&format!("The number of parameters of model is {parameters}"));
    }

    /// Records the steps of the replicas of one process.
    pub fn trace(&self) -> &Trace {
        self.meter.trace()
    }

    /// Begins an epoch of this number of batches.
    pub fn begin_epoch(&mut self, epoch: u64, batches: usize) {
        self.epoch = Epoch::new(epoch, batches);
    }

    /// Starts the clock of a batch, which has just come.
    pub fn begin_batch(&mut self) -> Result<Begun> {
        let fetch = self.epoch.free_since.elapsed();
        self.meter.begin_step()?;
        Ok(Begun { fetch, event: Event::record(self.home)? })
    }

    /// Stops it, and prints a line every --print-freq batches, which is a collective.
    pub fn end_batch(
        &mut self,
        Begun { fetch, event: begun }: Begun,
        loss: &Tensor,
        outputs: &Tensor,
        labels: &Tensor,
    ) -> Result<()> {
        // As in the repository, the clock still runs.
        let [correct] = accuracy(outputs, labels, [1])?;
        let ended = Event::record(self.home)?;
        self.meter.end_step()?;
        self.profiler.step()?;

        let EpochEvent { batches, taken: step, .. } = self.epoch.event;
        let batch = Batch { step, images: labels.size()[0] as usize, fetch, begun, ended };
        self.epoch.in_flight.push(batch, [loss, &correct])?;
        self.epoch.event.taken += 1;
        let prints = step.is_multiple_of(self.args.print_freq as usize);
        // The repository waits for the loss of every batch. Here only a comparison does: its table shows
        // the wait for a batch and the work on it separately.
        let batch_seconds = self.take_arrived(prints || self.is_measured)?;
        if let (true, Some(batch_seconds)) = (prints, batch_seconds) {
            let loss = self.epoch.loss.all_reduce(self.group)?;
            let accuracy = self.epoch.accuracy.all_reduce(self.group)?;
            self.say(&format!(
                "Epoch: [{step}/{batches}]| loss: {loss:.3} | acc: {accuracy:.3} | \
                 batch time: {batch_seconds:.3}s "
            ));
        }
        self.epoch.free_since = Instant::now();
        Ok(())
    }

    /// Takes the numbers that have come from the device, or waits for all. Returns the seconds of the
    /// last of these batches.
    fn take_arrived(&mut self, waits: bool) -> Result<Option<f64>> {
        let (epoch, mut last) = (self.epoch.event.epoch, None);
        for (batch, [loss, correct]) in self.epoch.in_flight.arrived(waits)? {
            let Batch { step, images, fetch, begun, ended } = batch;
            // Behind the events came the numbers, so both have been reached.
            let took = begun.elapsed_time(&ended)?;
            self.timing.step_took(took);
            let (batch_seconds, fetch_seconds) = (took.as_secs_f64(), fetch.as_secs_f64());
            let event =
                StepEvent { epoch, step, loss: Some(loss as f32), batch_seconds, fetch_seconds };
            self.metrics.log("step", &event)?;
            if !loss.is_finite() && !self.is_measured {
                let advice =
                    format!("the loss is {loss} at epoch {epoch}, step {step}; try a smaller --lr");
                return Err(why_not_finite(self.group, advice));
            }
            self.epoch.loss.update(loss, 1);
            self.epoch.accuracy.update(correct, images);
            last = Some(batch_seconds);
        }
        Ok(last)
    }

    /// Prints how long the epoch took, until the device has ended its last batch.
    pub fn end_epoch(&mut self) -> Result<()> {
        self.take_arrived(true)?;
        let took = self.epoch.begun.elapsed();
        self.say(&format!("Training time {}", timedelta(took)));
        self.epoch.event.seconds = took.as_secs_f64();
        Ok(self.metrics.log("epoch", &self.epoch.event)?)
    }

    /// Prints what each device of this process held and did. `waited` is the time per batch in which a
    /// rank only waits for others.
    pub fn finish(
        mut self,
        vs: &VarStore,
        optimizer: &dyn Optimizer,
        waited: Option<Duration>,
    ) -> Result<()> {
        for report in self.meter.reports(vs, optimizer.state_bytes(), waited, &self.timing)? {
            println!("{report}");
            self.metrics.log("device", &report)?;
        }
        Ok(self.metrics.log("end", &self.timing.summary())?)
    }
}

/// The time as Python prints a `datetime.timedelta`: `0:22:01.600000`.
fn timedelta(time: Duration) -> String {
    format!("{}.{:06}", hours(time.as_secs()), time.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_in_python() {
        assert_eq!(timedelta(Duration::from_micros(1_321_600_001)), "0:22:01.600001");
        assert_eq!(timedelta(Duration::from_secs(3 * 3600)), "3:00:00.000000");
    }
}
