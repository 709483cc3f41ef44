//! A device of this process: a GPU, or a part of the CPU that stands in for one.

use crate::{Error, Result};
use c10d_sys::{device, memory, memory::CPU_DEVICES};
use std::{fmt, marker::PhantomData, num::IntErrorKind, str::FromStr};
use tch::{Cuda, Device, Tensor};

/// Whether this program was built with the feature `cuda`; a GPU need not be there. `torch.backends.cuda.is_built`
///
/// ```
/// let uses_gpus = tch_parallel::cuda_is_built() && tch::Cuda::is_available();
/// ```
pub const fn cuda_is_built() -> bool {
    cfg!(feature = "cuda")
}

/// Why there is no GPU for this program.
pub fn no_gpu() -> &'static str {
    if cuda_is_built() {
        "PyTorch finds no GPU on this host"
    } else {
        "this program was built without the feature `cuda`, which `cargo launch` and `cargo xtask \
         run` enable on a machine with a GPU"
    }
}

/// A GPU, or a logical device: a part of the CPU with its own count of memory.
///
/// Logical devices show data parallelism without a GPU. Each replica runs on its own thread, and that thread's
/// allocations belong to its device ([`guard`](Self::guard)). A tensor that moves from one logical device to another is
/// copied, as between GPUs. PyTorch's counterpart is `torch.device`, which has only one CPU.
///
/// ```
/// use tch::{Tensor, kind::FLOAT_CPU};
/// use tch_parallel::LogicalDevice;
///
/// let device: LogicalDevice = "cpu:1".parse()?;
/// let batch = Tensor::ones([8, 4], FLOAT_CPU);
/// assert_eq!(LogicalDevice::of(&batch).to_string(), "cpu:0");
/// assert_eq!(LogicalDevice::of(&device.copy_of(&batch)?), device);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogicalDevice {
    /// `cpu:0`, `cpu:1` …: a part of the CPU.
    Cpu(usize),
    /// `cuda:0`, `cuda:1` …: a GPU.
    Cuda(usize),
}

impl LogicalDevice {
    /// Refuses a device that does not exist.
    ///
    /// # Errors
    /// [`Error::Argument`] for an index beyond the last GPU, or beyond the logical devices.
    pub fn check(self) -> Result<Self> {
        let expected = match self {
            LogicalDevice::Cpu(index) if index < CPU_DEVICES => return Ok(self),
            LogicalDevice::Cpu(_) => format!("one of cpu:0 to cpu:{}", CPU_DEVICES - 1),
            LogicalDevice::Cuda(index) => match Cuda::device_count().max(0) as usize {
                count if index < count => return Ok(self),
                0 => format!("a logical device such as cpu:0: {}", no_gpu()),
                count => format!("one of cuda:0 to cuda:{}", count - 1),
            },
        };
        Err(Error::argument("device", self, expected))
    }

    /// The device of a tensor. One without its own memory, empty or sparse, is on `cpu:0`, and so is a batch of a
    /// loader's worker, although it is not counted there until `Epoch::to` or [`copy_of`](Self::copy_of) copies it.
    pub fn of(tensor: &Tensor) -> Self {
        match tensor.device() {
            Device::Cuda(index) => LogicalDevice::Cuda(index),
            _ => LogicalDevice::Cpu(memory::cpu_device_of(tensor).unwrap_or(0)),
        }
    }

    /// Until the guard is dropped, this thread's allocations on the CPU belong to this device; a
    /// GPU becomes the current one. `with torch.cuda.device(…):`
    ///
    /// # Errors
    /// [`Error::Argument`] for a device that does not exist.
    pub fn guard(self) -> Result<DeviceGuard> {
        self.check()?;
        let previous = match self {
            LogicalDevice::Cpu(index) => LogicalDevice::Cpu(memory::exchange_cpu_device(index)),
            LogicalDevice::Cuda(index) => LogicalDevice::Cuda(
                device::exchange_cuda_device(index).map_err(Error::engine("set the device"))?,
            ),
        };
        Ok(DeviceGuard { previous, of_this_thread: PhantomData })
    }

    /// `tensor.to(device)`: the tensor itself, or a copy on this device whose gradient continues in `tensor`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a device that does not exist, [`Error::Tensor`] if memory runs out.
    pub fn copy_of(self, tensor: &Tensor) -> Result<Tensor> {
        if LogicalDevice::of(tensor) == self && !memory::is_on_host(tensor) {
            return Ok(tensor.shallow_clone());
        }
        let _on = self.guard()?;
        // From pinned memory, the host need not wait for the copy, as in PyTorch's scatter
        // (torch/csrc/cuda/comm.cpp). In the other direction it would read too early.
        let non_blocking = matches!(self, LogicalDevice::Cuda(_));
        // Even if both are on the CPU; PyTorch's copies keep the strides.
        let copy = true;
        Ok(tensor.f_to_device_(self.into(), tensor.kind(), non_blocking, copy)?)
    }
}

/// Restores this thread's previous device; see [`LogicalDevice::guard`].
#[derive(Debug)]
#[must_use = "the device is current only while the guard lives"]
pub struct DeviceGuard {
    previous: LogicalDevice,
    /// The current device is per thread: dropped on another thread, a guard would set that one's.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        match self.previous {
            LogicalDevice::Cpu(index) => {
                memory::exchange_cpu_device(index);
            }
            // As in PyTorch's guards, this creates no context. The device was current before, so it cannot fail.
            LogicalDevice::Cuda(index) => drop(device::restore_cuda_device(index)),
        }
    }
}

impl From<LogicalDevice> for Device {
    fn from(device: LogicalDevice) -> Device {
        match device {
            LogicalDevice::Cpu(_) => Device::Cpu,
            LogicalDevice::Cuda(index) => Device::Cuda(index),
        }
    }
}

impl fmt::Display for LogicalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogicalDevice::Cpu(index) => write!(f, "cpu:{index}"),
            LogicalDevice::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for LogicalDevice {
    type Err = Error;

    /// `cpu:1`, `cuda:0`; without an index, the first.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other text, and for a device that does not exist.
    fn from_str(text: &str) -> Result<Self> {
        let expected = "a device such as cpu:0 or cuda:1";
        named(text).ok_or_else(|| Error::argument("device", format!("{text:?}"), expected))?.check()
    }
}

/// The device with this name, whether or not it exists.
pub(crate) fn named(text: &str) -> Option<LogicalDevice> {
    let (name, index) = text.split_once(':').unwrap_or((text, "0"));
    Some(kind(name)?(number(index)?))
}

pub(crate) fn kind(name: &str) -> Option<fn(usize) -> LogicalDevice> {
    match name {
        "cpu" => Some(LogicalDevice::Cpu),
        "cuda" => Some(LogicalDevice::Cuda),
        _ => None,
    }
}

pub(crate) fn number(digits: &str) -> Option<usize> {
    match digits.parse() {
        Ok(number) => Some(number),
        // Too large for any machine: the later check reports how many there are.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(usize::MAX),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn a_tensor_lies_where_its_thread_was_when_it_was_made() {
        let make = || Tensor::zeros([4], (Kind::Float, Device::Cpu));
        let there = {
            let _on = LogicalDevice::Cpu(1).guard().unwrap();
            make()
        };
        assert_eq!(LogicalDevice::of(&there), LogicalDevice::Cpu(1));
        assert_eq!(LogicalDevice::of(&make()), LogicalDevice::Cpu(0));
        // A view shares its block, and so its device.
        assert_eq!(LogicalDevice::of(&there.narrow(0, 1, 2)), LogicalDevice::Cpu(1));
    }

    #[test]
    fn what_has_no_memory_of_its_own_is_on_the_first() {
        let empty = Tensor::zeros([0], (Kind::Float, Device::Cpu));
        let sparse = Tensor::eye(3, (Kind::Float, Device::Cpu)).to_sparse(None, None::<i64>, None);
        assert_eq!([&empty, &sparse].map(LogicalDevice::of), [LogicalDevice::Cpu(0); 2]);
    }

    #[test]
    fn a_tensor_is_copied_to_another_device_and_only_there() {
        let here = Tensor::arange(4, (Kind::Float, Device::Cpu));
        let same = LogicalDevice::Cpu(0).copy_of(&here).unwrap();
        assert_eq!(same.data_ptr(), here.data_ptr());
        let there = LogicalDevice::Cpu(1).copy_of(&here).unwrap();
        assert_ne!(there.data_ptr(), here.data_ptr());
        assert_eq!(LogicalDevice::of(&there), LogicalDevice::Cpu(1));
        assert_eq!(there, here);
        // A transposed tensor stays transposed, as on GPUs, and is made contiguous only where needed.
        let transposed = LogicalDevice::Cpu(1).copy_of(&here.view([2, 2]).tr()).unwrap();
        assert_eq!(transposed.stride(), [1, 2]);
    }
}
