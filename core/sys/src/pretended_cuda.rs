//! CUDA devices for tests on a machine that has none.

use crate::ffi;

/// What a thread has asked of the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Calls {
    /// A bit for each device on which there would be a context.
    pub contexts: u64,
    /// How many events were recorded.
    pub events: usize,
    /// How often the host would have waited for a device.
    pub waits: usize,
}

/// From now on there seem to be CUDA devices in this process, on which nothing can be computed.
/// False if there are real ones.
#[must_use = "without pretended devices there is nothing to test"]
pub fn pretend() -> bool {
    // SAFETY: takes no pointer.
    unsafe { ffi::c10d_pretend_cuda() }
}

/// What this thread has asked of them since the last call.
pub fn take_calls() -> Calls {
    // SAFETY: takes no pointer.
    unsafe { ffi::c10d_take_cuda_calls() }
}
