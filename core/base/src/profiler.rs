//! Traces of what runs when, and counts of what makes the host wait for a device.

use crate::{Error, Result, check};
use c10d_sys::profiler;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs::OpenOptions, path::Path, path::PathBuf};

/// Calls `body`, and returns its result with the number of times at which this thread made the host
/// wait for a device, by the most usual ways. For tests: what waits on a GPU counts on the CPU too.
///
/// Counted are reading a number (`item`, `double_value`, `f64::try_from` …), `tensor.to("cpu")`
/// unless it is `non_blocking`, `equal`, `nonzero`, and this library's waits for events, such as
/// [`Event::synchronize`](crate::Event::synchronize). Nothing else is, so 0 is no proof:
/// `torch.cuda.set_sync_debug_mode("warn")` finds more. `masked_select` and `unique` count only on
/// a GPU, by the operators that they call there; `copy_` and `tch::Cuda::synchronize` never do.
///
/// ```
/// use tch::{Kind, Tensor, kind::FLOAT_CPU};
/// use tch_parallel::profiler::count_synchronizations;
///
/// let step = || Tensor::ones([8], FLOAT_CPU).exp().sum(Kind::Float);
/// let (loss, waits) = count_synchronizations(step)?;
/// assert_eq!(waits, 0);
/// let (_, waits) = count_synchronizations(|| f64::try_from(&loss))?;
/// assert_eq!(waits, 1);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Tensor`] if libtorch refuses the callback.
pub fn count_synchronizations<R>(body: impl FnOnce() -> R) -> Result<(R, usize)> {
    profiler::count_synchronizations(body).map_err(Error::engine("count synchronizations"))
}

/// There is one profiler for the whole process.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// `torch.profiler.profile`: records all threads, on GPUs too. Without [`stop`](Self::stop), it writes no trace.
///
/// ```
/// use tch::{Kind, Tensor, kind::FLOAT_CPU};
/// use tch_parallel::profiler::Profiler;
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("rank0.json");
/// let profiler = Profiler::start(&path)?;
/// Tensor::ones([2, 2], FLOAT_CPU).set_requires_grad(true).square().sum(Kind::Float).backward();
/// profiler.stop()?;
/// assert!(std::fs::read_to_string(path)?.contains("PowBackward0"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it records until `stop` is called"]
pub struct Profiler {
    /// None once it has ended.
    path: Option<String>,
}

impl Profiler {
    /// Begins to record, for a trace at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written; [`Error::Argument`] if another profiler is
    /// running, or for a path that is not UTF-8. A file that is there already is then unchanged.
    pub fn start(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into().into_os_string().into_string().map_err(|path| {
            Error::argument("the trace's path", format!("{path:?}"), "UTF-8, as PyTorch requires")
        })?;
        let expected = "stopped before another starts";
        check(!RUNNING.swap(true, Ordering::AcqRel), "the profiler", "running already", expected)?;
        // The trace itself replaces the file only when it is complete.
        let opened = OpenOptions::new().create(true).write(true).truncate(false).open(&path);
        let opened = opened.inspect_err(|_| RUNNING.store(false, Ordering::Release));
        opened.map_err(Error::io("create", &path))?;
        // From here on, a drop ends it.
        let profiler = Profiler { path: Some(path) };
        profiler::start(tch::Cuda::is_available()).map_err(Error::engine("start the profiler"))?;
        Ok(profiler)
    }

    /// Ends recording and writes the trace.
    ///
    /// # Errors
    /// [`Error::Tensor`] if PyTorch's profiler fails.
    pub fn stop(mut self) -> Result<()> {
        self.end(true)
    }

    fn end(&mut self, save: bool) -> Result<()> {
        let Some(path) = self.path.take() else { return Ok(()) };
        let stopped = profiler::stop(save.then_some(path.as_str()));
        RUNNING.store(false, Ordering::Release);
        stopped.map_err(Error::engine("stop the profiler"))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // Nobody is left to be told of an error.
        let _ = self.end(false);
    }
}

/// Records `body`, for a trace at `path`: `with torch.profiler.profile()`.
pub fn profile<R>(path: impl AsRef<Path>, body: impl FnOnce() -> R) -> Result<R> {
    let profiler = Profiler::start(path.as_ref())?;
    let result = body();
    profiler.stop()?;
    Ok(result)
}

/// `with torch.profiler.record_function(name)`: a range in the trace. Without a profiler this only calls `body`.
///
/// ```
/// use tch_parallel::profiler::record_function;
///
/// assert_eq!(record_function("evaluate", || 6 * 7)?, 42);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Tensor`] for a name that contains NUL.
pub fn record_function<R>(name: &str, body: impl FnOnce() -> R) -> Result<R> {
    profiler::record_function(name, body).map_err(Error::engine("record_function"))
}
