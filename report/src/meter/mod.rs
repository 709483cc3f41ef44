//! What each device holds and does in a training step.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | [`Meter`]: measures every step |
//! | `device_report` | [`DeviceReport`]: the results for one device |
//! | `idle` | how long a device is idle in a step |

mod device_report;
mod idle;

use crate::Timing;
use std::time::Duration;
use tch::{Tensor, nn::VarStore};
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice, Result, data_parallel::Trace};

pub use device_report::DeviceReport;

/// Measures every step after the first [two](Self::WARM_UP), or the last one if there are no more.
///
/// PyTorch counts a GPU's memory on the host, which need not wait for that. Where one process has
/// several GPUs, the end of each step waits for them: how long each was idle is read from the trace,
/// and the table of a comparison needs it. [`Timing`] takes the time of the steps.
///
/// ```
/// use tch::{Kind, Tensor, kind::FLOAT_CPU, nn::{self, ModuleT, VarStore}};
/// use report::{Meter, Timing};
/// use tch_parallel::{Devices, Event, data_parallel::DataParallel};
///
/// let devices: Devices = "2xcpu".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let model = DataParallel::new(|p| nn::linear(p, 4, 3, Default::default()), &vs, &devices)?;
///
/// let (mut meter, mut timing) = (Meter::new(&devices), Timing::default());
/// model.set_trace(meter.trace());
/// for _step in 0..4 {
///     let images = Tensor::ones([8, 4], FLOAT_CPU);
///     meter.begin_step()?;
///     let begun = Event::record(devices.first())?;
///     model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
///     timing.step_between(begun, Event::record(devices.first())?)?;
///     meter.end_step()?;
/// }
/// let reports = meter.reports(&vs, 0, None, &timing)?;
/// assert_eq!(reports.len(), 2);
/// assert_eq!(reports[0].parameters, (4 * 3 + 3) * 4); // bytes
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct Meter {
    devices: Devices,
    trace: Trace,
    steps: usize,
    /// For each device, the most bytes within a measured step.
    peaks: Vec<usize>,
    /// How long the first of several devices was idle in the measured steps.
    home_idle: Duration,
    /// For each of several devices, how long it was busy in the measured steps.
    busy: Vec<Duration>,
}

impl Meter {
    /// The number of steps at the start that differ from later ones and are not measured. In the first step the
    /// optimizer has no state yet, and threads and caches are cold. In the second, [`DistributedDataParallel`] rebuilds
    /// its buckets, and gloo's threads may hold what was sent for that until after the peak.
    ///
    /// [`DistributedDataParallel`]: tch_parallel::distributed::DistributedDataParallel
    pub const WARM_UP: usize = 2;

    /// A meter of the devices that this process trains on.
    pub fn new(devices: &Devices) -> Self {
        Self {
            devices: devices.clone(),
            trace: Trace::new(),
            steps: 0,
            peaks: vec![0; devices.len()],
            home_idle: Duration::ZERO,
            busy: vec![Duration::ZERO; devices.len()],
        }
    }

    /// The first of its devices.
    pub fn home(&self) -> LogicalDevice {
        self.devices.first()
    }

    /// Records what the devices do. Pass it to a model with several replicas.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Begins a step, whose batch must already be loaded. Fails for a device that does not exist.
    pub fn begin_step(&mut self) -> Result<()> {
        self.devices.iter().try_for_each(reset_peak_memory_stats)?;
        self.trace.clear();
        Ok(())
    }

    /// Ends the step.
    pub fn end_step(&mut self) -> Result<()> {
        if self.steps <= Self::WARM_UP {
            self.peaks.fill(0);
            self.home_idle = Duration::ZERO;
            self.busy.fill(Duration::ZERO);
        }
        self.steps += 1;
        for (device, peak) in self.devices.iter().zip(&mut self.peaks) {
            *peak = max_memory_allocated(device)?.max(*peak);
        }
        // One device is never idle while others work.
        if self.devices.len() > 1 {
            let events = self.trace.events();
            self.home_idle += idle::of_home(&events, self.devices.first());
            for (device, busy) in self.devices.iter().zip(&mut self.busy) {
                *busy += idle::busy_time(&events, device);
            }
        }
        Ok(())
    }

    /// The report of every device. Call this when the last step's tensors have been freed.
    ///
    /// `optimizer_state` is in bytes, as reported by the optimizer. `waited` is how long a rank only waits for the
    /// others in each step ([`DdpLoggingData::waiting_time`], an average that includes the [`WARM_UP`](Self::WARM_UP)
    /// steps). Without it, the trace shows how long the devices of one process are idle. `timing` has the same steps;
    /// before the first, `idle_share` is 0.
    ///
    /// [`DdpLoggingData::waiting_time`]: tch_parallel::distributed::DdpLoggingData::waiting_time
    pub fn reports(
        &self,
        vs: &VarStore,
        mut optimizer_state: usize,
        waited: Option<Duration>,
        timing: &Timing,
    ) -> Result<Vec<DeviceReport>> {
        let (variables, gradients) = (vs.variables(), vs.trainable_variables());
        let parameters = variables.values().map(bytes).sum();
        let gradients = gradients.iter().map(Tensor::grad).filter(Tensor::defined);
        let mut gradients = gradients.map(|gradient| bytes(&gradient)).sum();
        let step = timing.mean_after(Self::WARM_UP);
        let mut reports = Vec::new();
        for (index, (device, peak)) in self.devices.iter().zip(&self.peaks).enumerate() {
            let idle = waited.unwrap_or_else(|| self.idle(index, step));
            reports.push(DeviceReport {
                device: device.to_string(),
                live: memory_allocated(device)?,
                peak: *peak,
                parameters,
                // Only the first device has these: a replica hands its gradients over and has no optimizer.
                gradients: std::mem::take(&mut gradients),
                optimizer_state: std::mem::take(&mut optimizer_state),
                idle_share: if step.is_zero() { 0.0 } else { idle.div_duration_f64(step).min(1.0) },
            });
        }
        Ok(reports)
    }

    /// How long a device is idle in a measured step, of this length.
    fn idle(&self, index: usize, step: Duration) -> Duration {
        let counted = self.steps.saturating_sub(Self::WARM_UP).max(1) as u32;
        match index {
            0 => self.home_idle / counted,
            _ => step.saturating_sub(self.busy[index] / counted),
        }
    }
}

fn bytes(tensor: &Tensor) -> usize {
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}
