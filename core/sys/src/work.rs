//! An exchange in progress.

use crate::arguments::milliseconds;
use crate::error::{check, written};
use crate::{Error, Result, ffi};
use std::ptr::NonNull;
use std::time::Duration;

/// An exchange in progress; `c10d::Work`. It continues whether or not anyone waits for it, and its
/// tensors are undefined until it has finished.
#[derive(Debug)]
#[must_use = "the tensors hold nothing of use before `wait` has returned"]
pub struct Work {
    pub(crate) handle: NonNull<ffi::Work>,
}

// SAFETY: the handle owns a reference counted with atomics to an object that locks around its state.
unsafe impl Send for Work {}

impl Work {
    pub(crate) fn new(handle: *mut ffi::Work) -> Result<Work> {
        NonNull::new(handle).map(|handle| Work { handle }).ok_or_else(Error::no_handle)
    }

    /// Blocks until the exchange has finished. On CUDA with NCCL, orders it before later work on
    /// the current stream. `timeout` is for messages, which are started without one.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout_ms = timeout.map_or(-1, milliseconds);
        // SAFETY: the handle is valid until `self` is dropped.
        check(unsafe { ffi::c10d_work_wait(self.handle.as_ptr(), timeout_ms) })
    }

    /// The rank from which a message has come. Gloo only.
    pub fn source_rank(&self) -> Result<usize> {
        // SAFETY: the handle is valid until `self` is dropped.
        let rank = written(|out| unsafe { ffi::c10d_work_source_rank(self.handle.as_ptr(), out) })?;
        usize::try_from(rank).map_err(|_| Error::misuse("no message has come yet"))
    }

    /// Whether the exchange has finished, without blocking.
    pub fn is_completed(&self) -> Result<bool> {
        // SAFETY: the handle is valid until `self` is dropped.
        written(|out| unsafe { ffi::c10d_work_is_completed(self.handle.as_ptr(), out) })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used again.
        unsafe { ffi::c10d_work_free(self.handle.as_ptr()) }
    }
}
