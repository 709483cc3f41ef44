//! This thread's current CUDA device.

use crate::{Result, error::check, error::written, ffi};

/// `torch.cuda.set_device(device)`.
///
/// Makes a context on the device, so a process that calls this first never has one on another.
pub fn set_cuda_device(device: usize) -> Result<()> {
    check(ffi::c10d_set_cuda_device(cuda(device)))
}

/// Makes a CUDA device current, and returns the previous one: `torch.cuda._exchange_device`.
pub fn exchange_cuda_device(device: usize) -> Result<usize> {
    written(|out| ffi::c10d_exchange_cuda_device(cuda(device), out)).map(|index| index as usize)
}

/// Makes a previous device current again, without a context on it if it has none: `torch.cuda._maybe_exchange_device`.
pub fn restore_cuda_device(device: usize) -> Result<()> {
    check(ffi::c10d_restore_cuda_device(cuda(device)))
}

/// A number too large for i32 becomes the largest, which the C++ side rejects like any missing device.
pub(crate) fn cuda(device: usize) -> i32 {
    i32::try_from(device).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pretended_cuda::{pretend, take_calls};

    #[test]
    fn a_device_that_was_current_gets_no_context_by_being_restored() {
        if !pretend() {
            return;
        }
        take_calls();
        let previous = exchange_cuda_device(3).unwrap();
        restore_cuda_device(previous).unwrap();
        assert_eq!(take_calls().contexts, 1 << 3);
        assert_eq!(exchange_cuda_device(3).unwrap(), previous);
    }
}
