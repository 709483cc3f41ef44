//! CUDA devices for tests on a machine that has none.

use crate::ffi;
pub use crate::ffi::Calls;

/// From now on there seem to be CUDA devices in this process, on which nothing can be computed.
/// False if there are real ones.
#[must_use = "without pretended devices there is nothing to test"]
pub fn pretend() -> bool {
    ffi::c10d_pretend_cuda()
}

/// What this thread has asked of them since the last call.
pub fn take_calls() -> Calls {
    ffi::c10d_take_cuda_calls()
}
