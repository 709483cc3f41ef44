//! PyTorch's profiler, without a policy.

use crate::callback::call_back;
use crate::error::{c_text, check};
use crate::{Error, ffi};
use std::ptr::null;

/// `torch.profiler.profile(activities=[CPU]).start()`, with CUDA's activities if `cuda`: records
/// what every thread of the process does from now on. One at a time.
pub fn start(cuda: bool) -> Result<(), Error> {
    // SAFETY: takes no pointers.
    check(unsafe { ffi::c10d_profiler_start(cuda) })
}

/// `profile.stop()`, and then `profile.export_chrome_trace(path)` if there is one.
pub fn stop(path: Option<&str>) -> Result<(), Error> {
    let path = path.map(c_text).transpose()?;
    // SAFETY: the path is null or a string that ends with NUL and lives through the call.
    check(unsafe { ffi::c10d_profiler_stop(path.as_ref().map_or(null(), |path| path.as_ptr())) })
}

/// `with torch.profiler.record_function(name)`: a range of this name in the trace, if there is one.
///
/// If `body` panics, the panic continues after the range has ended.
pub fn record_function<R>(name: &str, body: impl FnOnce() -> R) -> Result<R, Error> {
    let name = c_text(name)?;
    call_back(body, |entry, context| {
        // SAFETY: the name lives through the call; `call_back` gives what belongs together.
        unsafe { ffi::c10d_record_function(name.as_ptr(), entry, context) }
    })
}
