//! The companion repository's lines, and the numbers for a comparison.

use super::Args;
use crate::meter::accuracy;
use anyhow::Result;
use exhibit_kit::weights::parameters;
use report::{Batches, Meter, Run, hours, println};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use tch::{Tensor, nn::VarStore};
use tch_parallel::{Devices, LogicalDevice, data::DataLoader, data::Dataset};
use tch_parallel::{data_parallel::Trace, distributed::ProcessGroup, optim::Optimizer};

/// Prints how far a training is, as the companion repository does, and measures it.
///
/// Its clock is the repository's: it starts when the batch is there. The wait for the batch is
/// measured apart (S4.46). Where the repository's DDP script lets every rank print the loss of its own
/// share, here rank 0 prints that of the whole batch (S4.51).
#[derive(Debug)]
pub struct Progress<'a> {
    args: &'a Args,
    group: &'a ProcessGroup,
    run: Run<'a, 2>,
    /// Records the steps of the replicas of one process.
    pub trace: Trace,
    /// Of a whole epoch.
    batches: usize,
    /// When the present epoch began.
    begun: Instant,
}

/// The times in the event `step` of the metrics.
#[derive(Deserialize)]
pub struct StepEvent {
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
    /// The progress of a rank with these devices. In a comparison bytes and seconds count, whatever the loss is.
    pub fn new(
        args: &'a Args,
        is_measured: bool,
        devices: &Devices,
        group: &'a ProcessGroup,
    ) -> Result<Self> {
        let meter = Meter::new(devices);
        let trace = meter.trace().clone();
        // The repository waits for the loss of every batch. Here only a comparison does: its table shows
        // the wait for a batch and the work on it separately.
        let every = if is_measured { 1 } else { args.print_freq as usize };
        let run = args.report.start(group, args.lr, Default::default())?.with_device_meter(meter);
        let run = run.with_lines(every, args.steps.map(|steps| steps as usize));
        let run = run.with_advice((!is_measured).then_some("try a smaller --lr"));
        Ok(Self { args, group, run, trace, batches: 0, begun: Instant::now() })
    }

    /// Prints a line, on rank 0.
    pub fn say(&self, line: &str) {
        report::say(self.group, line);
    }

    pub fn say_device(&self, device: LogicalDevice) {
        match device {
            LogicalDevice::Cuda(index) => println!("Use GPU: {index} for training"),
            LogicalDevice::Cpu(_) => println!("Use {device} for training"),
        }
    }

    pub fn say_parameters(&self, vs: &VarStore) {
        self.say(&format!("The number of parameters of model is {}", parameters(vs)));
    }

    /// Begins the next epoch: its batches, --steps of them at most.
    pub fn epoch<'l, D: Dataset + 'static>(
        &mut self,
        loader: &'l DataLoader<D>,
    ) -> Result<Batches<'l, D::Batch>> {
        self.begun = Instant::now();
        self.batches = loader.len();
        self.run.epoch(loader)
    }

    /// Ends a batch, and prints a line every --print-freq batches, which is a collective.
    pub fn end_batch(&mut self, loss: &Tensor, outputs: &Tensor, labels: &Tensor) -> Result<()> {
        // As in the repository, the clock still runs.
        let [correct] = accuracy(outputs, labels, [1])?;
        self.run.mark("batch_seconds")?;
        self.run.field("fetch_seconds", self.run.pass().fetch().as_secs_f64());
        self.run.step([loss, &correct], labels.size()[0])?;
        let (step, batches) = (self.run.progress().step - 1, self.batches);
        if step.is_multiple_of(self.args.print_freq as usize) {
            let [loss, accuracy] = self.run.pass().all_reduce(self.group)?;
            let batch_seconds = self.run.mark_seconds();
            self.say(&format!(
                "Epoch: [{step}/{batches}]| loss: {loss:.3} | acc: {accuracy:.3} | \
                 batch time: {batch_seconds:.3}s "
            ));
        }
        Ok(())
    }

    /// Prints how long the epoch took, until the device has ended its last batch.
    pub fn end_epoch(&mut self) -> Result<()> {
        let (epoch, batches) = (self.run.progress().epoch, self.batches);
        let (taken, _) = self.run.end_pass()?.position();
        let took = self.begun.elapsed();
        self.say(&format!("Training time {}", timedelta(took)));
        self.run.log("epoch", &EpochEvent { epoch, batches, taken, seconds: took.as_secs_f64() })
    }

    /// Prints what each device of this process held and did. `waited`: how long a rank waits for others, per batch.
    pub fn finish(
        mut self,
        vs: &VarStore,
        optimizer: &dyn Optimizer,
        waited: Option<Duration>,
    ) -> Result<()> {
        self.run.report_devices(vs, optimizer.state_bytes(), waited)?;
        self.run.end()
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
