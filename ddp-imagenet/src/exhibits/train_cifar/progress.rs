//! The companion repository's lines, and the numbers for a comparison.

use super::Args;
use anyhow::{Result, ensure};
use report::Meter;
use report::{MetricsLog, Timing};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tch::Tensor;
use tch::nn::VarStore;
use tch_parallel::data_parallel::Trace;
use tch_parallel::distributed::{AvgMetric, ProcessGroup};
use tch_parallel::optim::Optimizer;
use tch_parallel::{Devices, LogicalDevice};

/// Tells how far a training is, as the companion repository does, and measures it.
///
/// Its clock is the repository's: it starts when the batch is there. How long that took is measured
/// apart (S4.46). Where the repository's DDP script lets every rank print the loss of its own share,
/// here rank 0 prints that of the whole batch (S4.51).
#[derive(Debug)]
pub struct Progress<'a> {
    args: &'a Args,
    /// By a comparison, which is about bytes and seconds whatever the loss is.
    is_measured: bool,
    group: &'a ProcessGroup,
    meter: Meter,
    metrics: MetricsLog,
    timing: Timing,
    epoch: u64,
    /// Of a whole epoch.
    batches: usize,
    /// That have ended in this epoch.
    ended: usize,
    /// The means over this epoch's batches and images.
    loss: AvgMetric,
    accuracy: AvgMetric,
    epoch_begun: Instant,
    /// When the last batch was done with.
    free_since: Instant,
    /// How long the present batch was waited for.
    fetch: Duration,
}

/// The event `step` of the metrics: a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepEvent {
    pub epoch: u64,
    pub step: usize,
    /// Of this rank's share; NaN, which becomes `null`, where the training has failed.
    pub loss: Option<f32>,
    /// From when the batch was there to the end of the optimizer's step.
    pub batch_seconds: f64,
    /// How long the batch was waited for.
    pub fetch_seconds: f64,
}

/// The event `epoch` of the metrics.
#[derive(Debug, Serialize, Deserialize)]
pub struct EpochEvent {
    pub epoch: u64,
    /// That an epoch has.
    pub batches: usize,
    /// That were taken.
    pub taken: usize,
    pub seconds: f64,
}

impl<'a> Progress<'a> {
    /// Of a process with these devices, one of the group's ranks.
    pub fn new(
        args: &'a Args,
        is_measured: bool,
        devices: &Devices,
        group: &'a ProcessGroup,
    ) -> Result<Self> {
        let metrics = MetricsLog::of_rank(args.metrics.as_deref(), group)?;
        Ok(Self {
            args,
            is_measured,
            group,
            meter: Meter::new(devices),
            metrics,
            timing: Timing::new(),
            epoch: 0,
            batches: 0,
            ended: 0,
            loss: AvgMetric::new(),
            accuracy: AvgMetric::new(),
            epoch_begun: Instant::now(),
            free_since: Instant::now(),
            fetch: Duration::ZERO,
        })
    }

    /// Prints a line, on rank 0.
    pub fn say(&self, line: &str) {
        if self.group.rank() == 0 {
            println!("{line}");
        }
    }

    /// Prints where this rank trains.
    pub fn say_device(&self, device: LogicalDevice) {
        match device {
            LogicalDevice::Cuda(index) => println!("Use GPU: {index} for training"),
            LogicalDevice::Cpu(_) => println!("Use {device} for training"),
        }
    }

    /// Prints how many numbers are trained.
    pub fn say_parameters(&self, vs: &VarStore) {
        let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
        self.say(&format!("The number of parameters of model is {parameters}"));
    }

    /// Records what the replicas of one process do.
    pub fn trace(&self) -> &Trace {
        self.meter.trace()
    }

    /// Begins an epoch of so many batches.
    pub fn begin_epoch(&mut self, epoch: u64, batches: usize) {
        (self.epoch, self.batches, self.ended) = (epoch, batches, 0);
        (self.loss, self.accuracy) = (AvgMetric::new(), AvgMetric::new());
        self.epoch_begun = Instant::now();
        self.free_since = self.epoch_begun;
    }

    /// Starts the clock of a batch, which has just come.
    pub fn begin_batch(&mut self) -> Result<()> {
        self.fetch = self.free_since.elapsed();
        Ok(self.meter.begin_step()?)
    }

    /// Stops it, and prints a line every so many batches, for which all ranks must come here.
    pub fn end_batch(&mut self, loss: &Tensor, outputs: &Tensor, labels: &Tensor) -> Result<()> {
        // As in the repository, the clock still runs.
        let loss = f32::try_from(loss)?;
        let images = labels.size()[0] as usize;
        let correct = f64::try_from(outputs.accuracy_for_logits(labels))? * images as f64;
        let took = self.meter.end_step()?;

        self.timing.step_took(took);
        self.loss.update(f64::from(loss), 1);
        self.accuracy.update(100.0 * correct, images);
        let (epoch, step) = (self.epoch, self.ended);
        let event = StepEvent {
            epoch,
            step,
            loss: Some(loss),
            batch_seconds: took.as_secs_f64(),
            fetch_seconds: self.fetch.as_secs_f64(),
        };
        self.metrics.log("step", &event)?;
        ensure!(
            loss.is_finite() || self.is_measured,
            "the loss is {loss} at epoch {epoch}, step {step}; try a smaller --lr"
        );
        if step.is_multiple_of(self.args.print_freq as usize) {
            let [loss, accuracy] =
                [self.loss.summarize(self.group)?, self.accuracy.summarize(self.group)?];
            let (batches, took) = (self.batches, took.as_secs_f64());
            self.say(&format!(
                "Epoch: [{step}/{batches}]| loss: {loss:.3} | acc: {accuracy:.3} | batch time: {took:.3}s "
            ));
        }
        self.ended += 1;
        self.free_since = Instant::now();
        Ok(())
    }

    /// Prints what the epoch took.
    pub fn end_epoch(&mut self) -> Result<()> {
        let (took, epoch) = (self.epoch_begun.elapsed(), self.epoch);
        self.say(&format!("Training time {}", timedelta(took)));
        let (batches, taken, seconds) = (self.batches, self.ended, took.as_secs_f64());
        Ok(self.metrics.log("epoch", &EpochEvent { epoch, batches, taken, seconds })?)
    }

    /// Prints what each device of this process held and did. `waited` is how much of a batch's time
    /// a rank only waits for others.
    pub fn finish(
        &mut self,
        vs: &VarStore,
        optimizer: &dyn Optimizer,
        waited: Option<Duration>,
    ) -> Result<()> {
        for report in self.meter.reports(vs, optimizer.state_bytes(), waited)? {
            println!("{report}");
            self.metrics.log("device", &report)?;
        }
        let timing = std::mem::take(&mut self.timing);
        Ok(self.metrics.log("end", &timing.summary())?)
    }
}

/// As Python prints a `datetime.timedelta`: `0:22:01.600000`.
fn timedelta(time: Duration) -> String {
    let (seconds, microseconds) = (time.as_secs(), time.subsec_micros());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours}:{minutes:02}:{seconds:02}.{microseconds:06}")
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
