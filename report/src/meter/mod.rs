//! What each device holds and does in a training step.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | [`Meter`]: measures every step |
//! | `device_report` | [`DeviceReport`]: what it comes to, for one device |
//! | `idle` | how much of a step a device does nothing |

mod device_report;
mod idle;

use std::time::{Duration, Instant};
use tch::nn::VarStore;
use tch::{Cuda, Tensor};
use tch_parallel::data_parallel::Trace;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice, Result};

pub use device_report::DeviceReport;

/// Measures every step after the first [two](Self::WARM_UP); where there are no more, the last.
///
/// ```
/// use tch::{Kind, Tensor, kind::FLOAT_CPU, nn::{self, ModuleT, VarStore}};
/// use report::Meter;
/// use tch_parallel::{Devices, data_parallel::DataParallel};
///
/// let devices: Devices = "cpu:2".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let model = DataParallel::new(&vs, &devices, |p| nn::linear(p, 4, 3, Default::default()))?;
///
/// let mut meter = Meter::new(&devices);
/// model.set_trace(meter.trace());
/// for _step in 0..4 {
///     let images = Tensor::ones([8, 4], FLOAT_CPU);
///     meter.begin_step()?;
///     model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
///     meter.end_step()?;
/// }
/// let reports = meter.reports(&vs, 0, None)?;
/// assert_eq!(reports.len(), 2);
/// assert_eq!(reports[0].parameters, (4 * 3 + 3) * 4); // bytes
/// # Ok::<(), tch_parallel::Error>(())
/// ```
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
    /// Steps at the beginning that are unlike those to come. In the first the optimizer has no state
    /// yet, and threads and caches are cold. In the second [`DistributedDataParallel`] builds its
    /// buckets anew, and gloo's threads may hold what was sent for it until after the peak.
    ///
    /// [`DistributedDataParallel`]: tch_parallel::distributed::DistributedDataParallel
    pub const WARM_UP: u32 = 2;

    /// A meter of the devices that this process trains on.
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

    /// Records what the devices do. To be given to a model with several replicas.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Begins a step, in which the batch is there already.
    ///
    /// # Errors
    /// [`Error::Argument`](tch_parallel::Error::Argument) for a device that is not there.
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

    /// Ends the step, and says how long it took.
    ///
    /// # Errors
    /// As [`begin_step`](Self::begin_step).
    pub fn end_step(&mut self) -> Result<Duration> {
        let step = self.elapsed();
        if self.steps <= Self::WARM_UP {
            self.total = Duration::ZERO;
            self.peaks.fill(0);
            self.idle.fill(Duration::ZERO);
        }
        self.steps += 1;
        self.total += step;
        let events = self.trace.events();
        for (index, device) in self.devices.iter().enumerate() {
            self.peaks[index] = self.peaks[index].max(max_memory_allocated(device)?);
            self.idle[index] += match index {
                0 => idle::of_home(&events, device),
                _ => idle::of_replica(&events, device, step),
            };
        }
        Ok(step)
    }

    /// What there is to say of every device when the last step's tensors are gone.
    ///
    /// `optimizer_state` is in bytes, as optimizers tell it. `waited` is how much of a step a rank
    /// only waits for the others ([`DdpLoggingData::waiting_time`], an average that knows nothing of
    /// [`WARM_UP`](Self::WARM_UP)); without it, the trace tells how long the devices of one process do
    /// nothing. Before the first step there is no time to have a share of, and `idle_share` is 0.
    ///
    /// # Errors
    /// As [`begin_step`](Self::begin_step).
    ///
    /// [`DdpLoggingData::waiting_time`]: tch_parallel::distributed::DdpLoggingData::waiting_time
    pub fn reports(
        &self,
        vs: &VarStore,
        mut optimizer_state: usize,
        waited: Option<Duration>,
    ) -> Result<Vec<DeviceReport>> {
        let (variables, gradients) = (vs.variables(), vs.trainable_variables());
        let parameters = variables.values().map(bytes).sum();
        let gradients = gradients.iter().map(Tensor::grad).filter(Tensor::defined);
        let mut gradients = gradients.map(|gradient| bytes(&gradient)).sum();
        let counted = self.steps.saturating_sub(Self::WARM_UP).max(1);
        let mut reports = Vec::new();
        for ((device, peak), idle) in self.devices.iter().zip(&self.peaks).zip(&self.idle) {
            let idle = waited.unwrap_or(*idle / counted);
            let step = self.total / counted;
            reports.push(DeviceReport {
                device: device.to_string(),
                live: memory_allocated(device)?,
                peak: *peak,
                parameters,
                // The first device has them; a replica gives its own away and has no optimizer.
                gradients: std::mem::take(&mut gradients),
                optimizer_state: std::mem::take(&mut optimizer_state),
                idle_share: if step.is_zero() { 0.0 } else { idle.div_duration_f64(step) },
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
