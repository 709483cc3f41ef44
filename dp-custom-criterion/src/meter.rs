//! What each device holds and does in a step.

use crate::device_report::DeviceReport;
use crate::idle;
use anyhow::Result;
use std::time::{Duration, Instant};
use tch::nn::VarStore;
use tch::{Cuda, Tensor};
use tch_parallel::data_parallel::Trace;
use tch_parallel::distributed::DdpLoggingData;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::optim::{Adam, Optimizer};
use tch_parallel::{Devices, LogicalDevice};

/// Measures every step but the first, which is unlike the others: Adam has no state yet, and threads
/// and caches are cold. Where there is one step only, that one.
#[derive(Debug)]
pub struct Meter {
    devices: Devices,
    trace: Trace,
    begun: Instant,
    steps: u32,
    /// Of the steps that count.
    total: Duration,
    /// For each device, the most bytes within a step that counts.
    peaks: Vec<usize>,
    /// For each device, how long it did nothing in the steps that count.
    idle: Vec<Duration>,
}

impl Meter {
    pub fn new(devices: &Devices) -> Self {
        Self {
            devices: devices.clone(),
            trace: Trace::new(),
            begun: Instant::now(),
            steps: 0,
            total: Duration::ZERO,
            peaks: vec![0; devices.len()],
            idle: vec![Duration::ZERO; devices.len()],
        }
    }

    /// Records what the devices do. To be given to the model.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Begins a step, in which the batch is there already.
    pub fn begin_step(&mut self) -> Result<()> {
        for device in self.devices.iter() {
            reset_peak_memory_stats(device)?;
        }
        self.trace.clear();
        wait_for(&self.devices);
        self.begun = Instant::now();
        Ok(())
    }

    /// How long the step has taken so far.
    pub fn elapsed(&self) -> Duration {
        wait_for(&self.devices);
        self.begun.elapsed()
    }

    pub fn end_step(&mut self) -> Result<()> {
        let step = self.elapsed();
        if self.steps == 1 {
            self.total = Duration::ZERO;
            self.peaks.fill(0);
            self.idle.fill(Duration::ZERO);
        }
        self.steps += 1;
        self.total += step;
        let events = self.trace.events();
        for ((device, peak), idle) in self.devices.iter().zip(&mut self.peaks).zip(&mut self.idle) {
            *peak = (*peak).max(max_memory_allocated(device)?);
            *idle += idle::of_replica(&events, device, step);
        }
        Ok(())
    }

    /// What there is to say of every device when the last step's tensors are gone. `logging` is
    /// what DistributedDataParallel measured, where it trained.
    pub fn reports(
        &self,
        vs: &VarStore,
        optimizer: &Adam,
        logging: Option<&DdpLoggingData>,
    ) -> Result<Vec<DeviceReport>> {
        let (variables, gradients) = (vs.variables(), vs.trainable_variables());
        let parameters = variables.values().map(bytes).sum();
        let gradients = gradients.iter().map(Tensor::grad).filter(Tensor::defined);
        let mut gradients = gradients.map(|gradient| bytes(&gradient)).sum();
        let mut optimizer_state = optimizer.state_bytes();
        let counted = self.steps.saturating_sub(1).max(1);
        let mut reports = Vec::new();
        for ((device, peak), idle) in self.devices.iter().zip(&self.peaks).zip(&self.idle) {
            let idle = logging.map_or(*idle / counted, idle::of_rank);
            let step = self.total / counted;
            reports.push(DeviceReport {
                device: device.to_string(),
                live: memory_allocated(device)?,
                peak: *peak,
                parameters,
                // The first device has them; a replica gives its own away and has no optimizer.
                gradients: std::mem::take(&mut gradients),
                optimizer_state: std::mem::take(&mut optimizer_state),
                idle_share: idle.as_secs_f64() / step.as_secs_f64(),
            });
        }
        Ok(reports)
    }
}

/// A GPU has only been told what to do; the time is that of the doing.
fn wait_for(devices: &Devices) {
    for device in devices.iter() {
        if let LogicalDevice::Cuda(index) = device {
            Cuda::synchronize(index as i64);
        }
    }
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}
