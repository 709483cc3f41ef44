//! Live and peak bytes on a device, with the names of `torch.cuda`.
//!
//! A GPU's numbers come from PyTorch's caching allocator. A logical device's are exact: every block of CPU memory is
//! counted on the device of the thread that allocates it ([`LogicalDevice::guard`]), and subtracted there, whichever
//! thread frees it. What a loader's workers hold is counted on none. OpenMP threads are on `cpu:0`, so a kernel's
//! allocations on those count there; with `tch::set_num_threads(1)` there are none.
//!
//! ```
//! use tch::{Tensor, kind::FLOAT_CPU};
//! use tch_parallel::LogicalDevice;
//! use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
//!
//! let device: LogicalDevice = "cpu:1".parse()?;
//! let on = device.guard()?;
//! let activations = Tensor::zeros([256, 4], FLOAT_CPU);
//! assert_eq!(memory_allocated(device)?, 256 * 4 * 4);
//! drop(activations);
//! assert_eq!((memory_allocated(device)?, max_memory_allocated(device)?), (0, 4096));
//! reset_peak_memory_stats(device)?;
//! assert_eq!(max_memory_allocated(device)?, 0);
//! # drop(on);
//! # Ok::<(), tch_parallel::Error>(())
//! ```

use crate::{Error, LogicalDevice, Result};
pub use c10d_sys::memory::keep_freed_memory;
use c10d_sys::memory::{self, Bytes};

/// Bytes of the live tensors on `device`. `torch.cuda.memory_allocated`
///
/// # Errors
/// [`Error::Argument`] for a device that does not exist.
pub fn memory_allocated(device: LogicalDevice) -> Result<usize> {
    Ok(bytes(device)?.live)
}

/// The maximum of live bytes on `device` since [`reset_peak_memory_stats`]. `torch.cuda.max_memory_allocated`
///
/// # Errors
/// [`Error::Argument`] for a device that does not exist.
pub fn max_memory_allocated(device: LogicalDevice) -> Result<usize> {
    Ok(bytes(device)?.peak)
}

/// Resets the peak to the live bytes on `device`. `torch.cuda.reset_peak_memory_stats`
///
/// # Errors
/// [`Error::Argument`] for a device that does not exist.
pub fn reset_peak_memory_stats(device: LogicalDevice) -> Result<()> {
    match device.check()? {
        LogicalDevice::Cpu(index) => memory::reset_cpu_peak(index),
        LogicalDevice::Cuda(index) => {
            memory::reset_cuda_peak(index).map_err(Error::engine("reset_peak_memory_stats"))?;
        }
    }
    Ok(())
}

fn bytes(device: LogicalDevice) -> Result<Bytes> {
    let bytes = match device.check()? {
        LogicalDevice::Cpu(index) => Ok(memory::cpu_bytes(index)),
        LogicalDevice::Cuda(index) => memory::cuda_bytes(index),
    };
    bytes.map_err(Error::engine("memory_allocated"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tch::{Device, Kind, Tensor};

    /// Devices that no other test of this crate uses: tests share the process.
    const HERE: LogicalDevice = LogicalDevice::Cpu(50);
    const THERE: LogicalDevice = LogicalDevice::Cpu(51);

    fn kib(count: i64) -> Tensor {
        Tensor::zeros([count * 1024], (Kind::Uint8, Device::Cpu))
    }

    #[test]
    fn blocks_are_booked_to_the_byte_and_un_booked_where_they_were() {
        let (small, large) = {
            let _on = HERE.guard().unwrap();
            (kib(1), kib(100))
        };
        assert_eq!(memory_allocated(HERE).unwrap(), 101 * 1024);
        let other = thread::spawn(move || {
            let _on = THERE.guard().unwrap();
            drop(large);
            kib(7)
        });
        let other = other.join().unwrap();
        assert_eq!(memory_allocated(HERE).unwrap(), 1024);
        assert_eq!(max_memory_allocated(HERE).unwrap(), 101 * 1024);
        assert_eq!(memory_allocated(THERE).unwrap(), 7 * 1024);
        reset_peak_memory_stats(HERE).unwrap();
        assert_eq!(max_memory_allocated(HERE).unwrap(), 1024);
        drop((small, other));
        assert_eq!(memory_allocated(HERE).unwrap() + memory_allocated(THERE).unwrap(), 0);
    }

    #[test]
    fn a_backward_pass_allocates_on_the_device_of_its_thread() {
        const ALONE: LogicalDevice = LogicalDevice::Cpu(52);
        let weight = kib(1).to_kind(Kind::Float).set_requires_grad(true);
        let bytes = thread::spawn(move || {
            let _on = ALONE.guard().unwrap();
            (&weight * &weight).sum(Kind::Float).backward();
            (memory_allocated(ALONE).unwrap(), LogicalDevice::of(&weight.grad()))
        });
        // Only the gradient is left: as many floats as the weight has.
        assert_eq!(bytes.join().unwrap(), (4 * 1024, ALONE));
    }

    #[test]
    fn a_device_that_is_not_there_is_refused() {
        let error = memory_allocated(LogicalDevice::Cpu(64)).unwrap_err().to_string();
        assert_eq!(error, "device is cpu:64, but must be one of cpu:0 to cpu:63");
    }
}
