//! An exchange in progress.

use crate::{Error, Result, ffi};
use crate::{arguments::milliseconds, error::check, error::written, owned::Owned};
use std::time::Duration;

/// An exchange in progress; `c10d::Work`. It continues whether or not anyone waits for it, and its
/// tensors are undefined until it has finished.
#[derive(Debug)]
#[must_use = "the tensors hold nothing of use before `wait` has returned"]
pub struct Work(pub(crate) Owned<ffi::Work>);

// SAFETY: the handle owns a reference counted with atomics to an object that locks around its state.
unsafe impl Send for Work {}

impl Work {
    /// Blocks until the exchange has finished. On CUDA with NCCL, orders it before later work on
    /// the current stream. `timeout` is for messages, which are started without one.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        check(ffi::c10d_work_wait(&self.0, timeout.map_or(-1, milliseconds)))
    }

    /// The rank from which a message has come. Gloo only.
    pub fn source_rank(&self) -> Result<usize> {
        let rank = written(|out| ffi::c10d_work_source_rank(&self.0, out))?;
        usize::try_from(rank).map_err(|_| Error::misuse("no message has come yet"))
    }

    /// Whether the exchange has finished, without blocking.
    pub fn is_completed(&self) -> Result<bool> {
        written(|out| ffi::c10d_work_is_completed(&self.0, out))
    }
}
