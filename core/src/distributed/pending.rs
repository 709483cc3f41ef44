//! An exchange in progress, whose result must be waited for.

use super::process_group::ProcessGroup;
use crate::Result;
use c10d_sys::Work;

/// A value that other ranks are still writing to or reading from.
///
/// PyTorch's counterpart is the `Work` that `async_op=True` returns. There, the tensor can be used
/// before it is ready; here, the exchange owns it until [`wait`](Self::wait) returns it. If this is
/// dropped, an `all_reduce` goes on, but a send or receive is abandoned, and the other rank waits
/// for it until its timeout.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::distributed::{ProcessGroup, ReduceOp};
///
/// let group = ProcessGroup::from_env()?;
/// let gradient = Tensor::from_slice(&[1.0f32, 2.0]).to_device(group.device());
/// let pending = group.all_reduce_async(gradient, ReduceOp::Sum)?;
/// // … whatever does not need the sum …
/// let sum = pending.wait()?;
/// assert_eq!(Vec::<f32>::try_from(&sum)?, [1.0, 2.0]); // there is one rank
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the value is ready only when `wait` has returned it"]
#[doc(alias = "Work")]
pub struct Pending<T> {
    /// The tensor being exchanged; taken by `wait`.
    value: Option<T>,
    /// Taken by `wait`.
    work: Option<Work>,
    /// Finds the rank at fault when the exchange fails.
    group: ProcessGroup,
    operation: &'static str,
}

impl<T> Pending<T> {
    pub(super) fn new(value: T, work: Work, group: ProcessGroup, operation: &'static str) -> Self {
        Pending { value: Some(value), work: Some(work), group, operation }
    }

    /// Blocks until the exchange has finished, and returns the value. `Work.wait()`.
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) if a rank has died or the timeout is over.
    pub fn wait(mut self) -> Result<T> {
        match (self.value.take(), self.work.take()) {
            (Some(value), Some(work)) => {
                work.wait().map_err(|error| self.group.failed(self.operation, &error))?;
                Ok(value)
            }
            // `wait` consumes `self`.
            _ => unreachable!("a value that was waited for is gone"),
        }
    }

    /// Whether [`wait`](Self::wait) would return at once. `Work.is_completed()`.
    ///
    /// gloo cannot tell for sends and receives, in Python neither: this is false until they are
    /// waited for.
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) if the engine cannot tell.
    pub fn is_completed(&self) -> Result<bool> {
        self.work.as_ref().map_or(Ok(true), |work| {
            work.is_completed().map_err(|error| self.group.failed(self.operation, &error))
        })
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.work.is_some() {
            // The exchange may never finish.
            self.group.abandon();
        }
    }
}
