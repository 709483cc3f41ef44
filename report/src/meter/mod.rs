//! What each device holds and does in a training step.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | [`Meter`]: measures every step |
//! | `device_report` | [`DeviceReport`]: the results for one device |
//! | `idle` | how long a device is idle in a step |

mod device_report;
mod idle;

use std::time::{Duration, Instant};
use tch::nn::VarStore;
use tch::{Cuda, Tensor};
use tch_parallel::data_parallel::Trace;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice, Result};

pub use device_report::DeviceReport;

/// Measures every step after the first [two](Self::WARM_UP), or the last one if there are no more.
///
/// ```
/// use tch::{Kind, Tensor, kind::FLOAT_CPU, nn::{self, ModuleT, VarStore}};
/// use report::Meter;
/// use tch_parallel::{Devices, data_parallel::DataParallel};
///
/// let devices: Devices = "2xcpu".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let model = DataParallel::new(|p| nn::linear(p, 4, 3, Default::default()), &vs, &devices)?;
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
    /// The duration of all measured steps.
    total: Duration,
    /// For each device, the most bytes within a measured step.
    peaks: Vec<usize>,
    /// For each device, how long it was idle in the measured steps.
    idle: Vec<Duration>,
}

impl Meter {
    /// The number of steps at the start that differ from later ones and are not measured. In the
    /// first step the optimizer has no state yet, and threads and caches are cold. In the second,
    /// [`DistributedDataParallel`] rebuilds its buckets, and gloo's threads may hold what was sent
    /// for that until after the peak.
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

    /// Records what the devices do. Pass it to a model with several replicas.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Begins a step. Its batch must already be loaded.
    ///
    /// # Errors
    /// [`Error::Argument`](tch_parallel::Error::Argument) for a device that does not exist.
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

    /// Ends the step, and returns how long it took.
    ///
    /// # Errors
    /// Same as [`begin_step`](Self::begin_step).
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

    /// The report of every device. Call this when the last step's tensors have been freed.
    ///
    /// `optimizer_state` is in bytes, as reported by the optimizer. `waited` is how long a rank
    /// only waits for the others in each step ([`DdpLoggingData::waiting_time`], an average that
    /// includes the [`WARM_UP`](Self::WARM_UP) steps). Without it, the trace shows how long the
    /// devices of one process are idle. Before the first step, `idle_share` is 0.
    ///
    /// # Errors
    /// Same as [`begin_step`](Self::begin_step).
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
                // Only the first device has these: a replica hands its gradients over and has no
                // optimizer.
                gradients: std::mem::take(&mut gradients),
                optimizer_state: std::mem::take(&mut optimizer_state),
                idle_share: if step.is_zero() { 0.0 } else { idle.div_duration_f64(step) },
            });
        }
        Ok(reports)
    }
}

/// Waits until GPUs have finished: calls only queue their work, but the work is what is to be
/// timed.
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
