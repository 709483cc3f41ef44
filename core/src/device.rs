//! The devices of one process: GPUs, or parts of the CPU that stand in for them.

use crate::{Error, Result};
use c10d_sys::memory::{self, CPU_DEVICES};
use std::fmt;
use std::marker::PhantomData;
use std::num::IntErrorKind;
use std::str::FromStr;
use tch::{Cuda, Device, Tensor};

/// A GPU, or a logical device: a part of the CPU with its own count of memory.
///
/// Logical devices show data parallelism without a GPU. Each replica runs on its own thread, and
/// that thread's allocations belong to its device ([`guard`](Self::guard)). A tensor that moves
/// from one logical device to another is copied, as between GPUs. PyTorch's counterpart is
/// `torch.device`, which has only one CPU.
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
                0 => "cpu:N for N logical devices: PyTorch finds no GPU here, or this program was \
                      built without the feature `cuda`"
                    .into(),
                count => format!("one of cuda:0 to cuda:{}", count - 1),
            },
        };
        Err(Error::Argument { what: "device".into(), found: self.to_string(), expected })
    }

    /// The device of a tensor. A tensor without its own memory, empty or sparse, is on `cpu:0`.
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
                memory::exchange_cuda_device(index).map_err(Error::engine("set the device"))?,
            ),
        };
        Ok(DeviceGuard { previous, of_this_thread: PhantomData })
    }

    /// `tensor` on this device: the tensor itself if it is there already, else a copy without
    /// history. `tensor.to(device)`
    ///
    /// # Errors
    /// [`Error::Argument`] for a device that does not exist, [`Error::Tensor`] if memory runs out.
    pub fn copy_of(self, tensor: &Tensor) -> Result<Tensor> {
        if LogicalDevice::of(tensor) == self {
            return Ok(tensor.shallow_clone());
        }
        let _on = self.guard()?;
        // Even if both are on the CPU; PyTorch's copies keep the strides.
        let (non_blocking, copy) = (false, true);
        let moved = tensor
            .f_detach()
            .and_then(|tensor| tensor.f_to_device_(self.into(), tensor.kind(), non_blocking, copy));
        moved.map_err(Error::tensor("copy to a device"))
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
            LogicalDevice::Cuda(index) => {
                // It was current before, so setting it cannot fail.
                let _ = memory::exchange_cuda_device(index);
            }
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

    /// `cpu:1`, `cuda:0`; without an index, the first. (Parsed as [`Devices`], `cpu:1` is a list of
    /// one device, `cpu:0`.)
    ///
    /// # Errors
    /// [`Error::Argument`] for any other text, and for a device that does not exist.
    fn from_str(text: &str) -> Result<Self> {
        named(text)?.check()
    }
}

/// The devices that share a batch: at least one, all of one kind, all different. PyTorch's
/// `device_ids`.
///
/// Written `cpu:4` for four logical devices, `cuda:0,cuda:1` for these two GPUs, and `cuda` for all
/// GPUs on this host.
///
/// ```
/// use tch_parallel::Devices;
///
/// let devices: Devices = "cpu:2".parse()?;
/// assert_eq!(devices.len(), 2);
/// assert_eq!(devices.to_string(), "cpu:0,cpu:1");
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices(Vec<LogicalDevice>);

impl Devices {
    /// The listed devices, the first of which holds the original model.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty list, for a device that does not exist or is listed twice,
    /// and for a mixture of CPUs and GPUs.
    pub fn new(devices: impl IntoIterator<Item = LogicalDevice>) -> Result<Self> {
        let devices: Vec<_> = devices.into_iter().collect();
        let refuse = |found: String, expected: &str| {
            Err(Error::Argument { what: "devices".into(), found, expected: expected.into() })
        };
        let Some(first) = devices.first() else {
            return refuse("empty".into(), "at least one device, such as cpu:2 or cuda:0,cuda:1");
        };
        for (position, device) in devices.iter().enumerate() {
            if devices[..position].contains(device) {
                return refuse(
                    format!("a list with {device} twice"),
                    "a list of different devices: replicas that share one gain nothing",
                );
            }
            if Device::from(*device).is_cuda() != Device::from(*first).is_cuda() {
                return refuse(format!("a list with {first} and {device}"), "all of one kind");
            }
        }
        for device in &devices {
            device.check()?;
        }
        Ok(Devices(devices))
    }

    /// The logical devices `cpu:0` to `cpu:{count - 1}`.
    ///
    /// # Errors
    /// [`Error::Argument`] for 0, and for more than there are logical devices.
    pub fn cpu(count: usize) -> Result<Self> {
        Devices::new((0..count).map(LogicalDevice::Cpu))
    }

    /// All GPUs on this host.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is none.
    pub fn cuda() -> Result<Self> {
        LogicalDevice::Cuda(0).check()?;
        Devices::new((0..Cuda::device_count().max(0) as usize).map(LogicalDevice::Cuda))
    }

    /// The first device, which holds the original model. `device_ids[0]`
    pub fn first(&self) -> LogicalDevice {
        self.0[0]
    }

    /// The device at a position of the list.
    ///
    /// # Errors
    /// [`Error::Argument`] for an index beyond the end.
    pub fn get(&self, position: usize) -> Result<LogicalDevice> {
        self.0.get(position).copied().ok_or_else(|| Error::Argument {
            what: "device number".into(),
            found: position.to_string(),
            expected: format!("below {}, the number of devices in {self}", self.len()),
        })
    }

    /// The number of devices.
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In the order of their parts of a batch.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = LogicalDevice> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(|device| device.to_string()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Devices {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Devices::cpu(1),
            "cuda" => Devices::cuda(),
            _ => match text.strip_prefix("cpu:") {
                Some(count) if !text.contains(',') => Devices::cpu(number(text, count)?),
                _ => Devices::new(text.split(',').map(named).collect::<Result<Vec<_>>>()?),
            },
        }
    }
}

/// The device with this name, whether or not it exists.
fn named(text: &str) -> Result<LogicalDevice> {
    let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
    let index = number(text, index)?;
    match kind {
        "cpu" => Ok(LogicalDevice::Cpu(index)),
        "cuda" => Ok(LogicalDevice::Cuda(index)),
        _ => Err(no_device(text)),
    }
}

fn number(text: &str, digits: &str) -> Result<usize> {
    match digits.parse() {
        Ok(number) => Ok(number),
        // Too large for any machine: the later check reports how many there are.
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(usize::MAX),
        Err(_) => Err(no_device(text)),
    }
}

fn no_device(text: &str) -> Error {
    Error::Argument {
        what: "device".into(),
        found: format!("{text:?}"),
        expected: "cpu:N for N logical devices, or a list such as cuda:0,cuda:1".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn parsed(text: &str) -> std::result::Result<String, String> {
        text.parse::<Devices>().map(|d| d.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_count_of_logical_devices_is_a_list_of_them() {
        assert_eq!(parsed("cpu:3").unwrap(), "cpu:0,cpu:1,cpu:2");
        assert_eq!(parsed("cpu").unwrap(), "cpu:0");
        assert_eq!(parsed("cpu:2,cpu:0").unwrap(), "cpu:2,cpu:0");
    }

    #[test]
    fn what_is_no_list_of_devices_is_refused() {
        for (text, expected) in [
            ("cpu:0", "devices is empty, but must be at least one device"),
            ("cpu:65", "device is cpu:64, but must be one of cpu:0 to cpu:63"),
            ("cpu:1,cpu:1", "devices is a list with cpu:1 twice"),
            ("cuda:0,cuda:0", "devices is a list with cuda:0 twice"),
            (
                "cuda:0,cpu:1",
                "devices is a list with cuda:0 and cpu:1, but must be all of one kind",
            ),
            ("gpu:0", "device is \"gpu:0\", but must be cpu:N for N logical devices"),
            ("cpu:x", "device is \"cpu:x\", but must be cpu:N"),
            ("", "device is \"\""),
            ("cuda:99999999999999999999", "device is cuda:"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

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
        for tensor in [empty, sparse] {
            assert_eq!(LogicalDevice::of(&tensor), LogicalDevice::Cpu(0));
        }
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
        // A transposed tensor stays transposed, as on GPUs, and is made contiguous only where
        // needed.
        let transposed = LogicalDevice::Cpu(1).copy_of(&here.view([2, 2]).tr()).unwrap();
        assert_eq!(transposed.stride(), [1, 2]);
    }
}
