//! A place in the work of a device.

use crate::{Error, Result};
use c10d_sys::stream::{self, Stream, waiting};
use std::time::{Duration, Instant};
use tch::Device;

/// A place in this thread's work on a device. `torch.Event(device, enable_timing=True)`, recorded when it is made.
///
/// Calls only queue work on a GPU and return. An event tells when the GPU has come this far, and two tell how long it
/// took in between; the host waits for neither. The CPU does its work at once, so its events have always been reached.
///
/// ```
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::Event;
///
/// let device = Device::cuda_if_available();
/// let begun = Event::record(device)?;
/// Tensor::ones([64, 64], (Kind::Float, device)).exp().sum(Kind::Float);
/// let ended = Event::record(device)?;
/// ended.synchronize()?;
/// assert!(!begun.elapsed_time(&ended)?.is_zero());
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct Event(Place);

#[derive(Debug)]
enum Place {
    Host(Instant),
    /// In the stream that was current.
    Cuda(stream::Event),
}

impl Event {
    /// `event.record()`, on the current stream of `device`.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a GPU that does not exist.
    pub fn record(device: impl Into<Device>) -> Result<Self> {
        Self::with_timing(device.into(), true)
    }

    /// `torch.Event(device, enable_timing=timing)`: without, an event of a GPU costs less and has
    /// no [`elapsed_time`](Self::elapsed_time).
    pub fn with_timing(device: Device, timing: bool) -> Result<Self> {
        let Device::Cuda(index) = device else {
            return Ok(Event(Place::Host(Instant::now())));
        };
        let error = Error::engine("record an event");
        let event = Stream::current(index).and_then(|on| stream::Event::record(on, timing));
        Ok(Event(Place::Cuda(event.map_err(error)?)))
    }

    /// Whether the device has come this far. Does not wait.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device's work has failed.
    pub fn query(&self) -> Result<bool> {
        match &self.0 {
            Place::Host(_) => Ok(true),
            Place::Cuda(event) => event.query().map_err(Error::engine("query an event")),
        }
    }

    /// Waits until the device has come this far.
    ///
    /// In a trace of `profiler`, this is a range `wait for the device`, on the CPU as well.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device's work has failed.
    pub fn synchronize(&self) -> Result<()> {
        let wait = || match &self.0 {
            Place::Host(_) => Ok(()),
            Place::Cuda(event) => event.synchronize(),
        };
        waiting(wait).flatten().map_err(Error::engine("wait for an event"))
    }

    /// The time from this event to `end`, both of which must have been reached on one device.
    ///
    /// # Errors
    /// [`Error::Tensor`] if one has not been reached, or has no timing, as that of a
    /// [`HostCopy`](crate::HostCopy); [`Error::Argument`] for events of the CPU and of a GPU.
    pub fn elapsed_time(&self, end: &Event) -> Result<Duration> {
        match (&self.0, &end.0) {
            (Place::Host(begin), Place::Host(end)) => Ok(end.saturating_duration_since(*begin)),
            (Place::Cuda(begin), Place::Cuda(end)) => {
                begin.elapsed_time(end).map_err(Error::engine("elapsed_time"))
            }
            _ => Err(Error::argument("end", "an event of another device", "one of this device")),
        }
    }
}
