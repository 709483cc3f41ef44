//! PyTorch's profiler, without a policy.

use crate::{Result, arguments::c_text, callback::call_back, error::check, ffi, ffi::Text};
use std::ptr::null;

/// `torch.profiler.profile(activities=[CPU]).start()`, with CUDA's activities if `cuda`: records
/// what every thread of the process does from now on. One at a time.
pub fn start(cuda: bool) -> Result<()> {
    check(ffi::c10d_profiler_start(cuda))
}

/// `profile.stop()`, and then `profile.export_chrome_trace(path)` if there is one.
pub fn stop(path: Option<&str>) -> Result<()> {
    let path = path.map(c_text).transpose()?;
    // SAFETY: the path is null or a string that ends with NUL and lives through the call.
    check(unsafe { ffi::c10d_profiler_stop(path.as_ref().map_or(null(), |path| path.as_ptr())) })
}

/// `with torch.profiler.record_function(name)`: a range of this name in the trace, if there is one.
///
/// If `body` panics, the panic continues after the range has ended.
pub fn record_function<R>(name: &str, body: impl FnOnce() -> R) -> Result<R> {
    let name = c_text(name)?;
    call_back(body, |entry, context| {
        // SAFETY: `call_back` gives what belongs together.
        unsafe { ffi::c10d_record_function(Text::new(&name), entry, context) }
    })
}

/// Calls `body`, and returns how often this thread made the host wait for a device meanwhile: what
/// `torch.cuda.set_sync_debug_mode("warn")` warns of. Operators that would wait if their tensors were
/// on a device are counted on the CPU too.
///
/// If `body` panics, the panic continues.
pub fn count_synchronizations<R>(body: impl FnOnce() -> R) -> Result<(R, usize)> {
    let mut count = 0;
    let result = call_back(body, |entry, context| {
        // SAFETY: `call_back` gives what belongs together.
        unsafe { ffi::c10d_count_synchronizations(entry, context, &mut count) }
    })?;
    Ok((result, usize::try_from(count).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::waiting;
    use tch::{Device, Kind, Tensor, kind::FLOAT_CPU};

    #[test]
    fn reads_are_counted_and_work_that_is_only_queued_is_not() {
        let tensor = Tensor::ones([3], FLOAT_CPU);
        let (sum, count) = count_synchronizations(|| (&tensor * 2.0).sum(Kind::Float)).unwrap();
        assert_eq!(count, 0);
        assert_eq!(count_synchronizations(|| f64::try_from(&sum).unwrap()).unwrap().1, 1);
        assert_eq!(count_synchronizations(|| sum.double_value(&[])).unwrap().1, 1);
        assert_eq!(count_synchronizations(|| (tensor.nonzero(), waiting(|| ()))).unwrap().1, 2);
        let non_blocking = || tensor.to_device_(Device::Cpu, Kind::Float, true, true);
        assert_eq!(count_synchronizations(non_blocking).unwrap().1, 0);
    }
}
