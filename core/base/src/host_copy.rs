//! Numbers on their way from a device to the host.

use crate::{Event, Result};
use tch::{Device, Tensor};

/// A tensor on its way to the host: `tensor.to("cpu", non_blocking=True)` with an event behind it.
///
/// Reading a number from a GPU, as `loss.item()` does, makes the host wait until the GPU has done everything that was
/// queued before; meanwhile nothing new is queued, and then the GPU waits for the host. A copy into page-locked memory
/// is queued like other work, and the number is read when the copy is done. As PyTorch's tutorial on `pin_memory()` and
/// `non_blocking` says, the copy must not be read earlier, so only [`wait`](Self::wait) gives it out.
///
/// On the CPU the copy is complete at once.
///
/// ```
/// use tch::{Device, Kind, Tensor};
/// use tch_parallel::HostCopy;
///
/// let device = Device::cuda_if_available();
/// let losses = Tensor::ones([3], (Kind::Float, device));
/// let copy = HostCopy::start(&losses)?;
/// // … the next step begins …
/// assert_eq!(copy.wait()?, Tensor::from_slice(&[1f32, 1.0, 1.0]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the copy is read by `wait`"]
pub struct HostCopy {
    copy: Tensor,
    /// Behind the copy, in the same stream.
    arrival: Event,
}

impl HostCopy {
    /// Begins to copy `tensor` as it is after the work queued so far. It may change afterwards.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) if memory runs out.
    pub fn start(tensor: &Tensor) -> Result<Self> {
        let (non_blocking, copy) = (true, true);
        // PyTorch puts such a copy in page-locked memory: `pin_out` in TensorConversions.cpp.
        let copy =
            tensor.f_detach()?.f_to_device_(Device::Cpu, tensor.kind(), non_blocking, copy)?;
        let timing = false;
        Ok(HostCopy { copy, arrival: Event::with_timing(tensor.device(), timing)? })
    }

    /// When the copy is complete. On a GPU this event has no [`elapsed_time`](Event::elapsed_time).
    pub fn arrival(&self) -> &Event {
        &self.arrival
    }

    /// The copy, when it is complete.
    pub fn wait(self) -> Result<Tensor> {
        if !self.arrival.query()? {
            self.arrival.synchronize()?;
        }
        Ok(self.copy)
    }
}
