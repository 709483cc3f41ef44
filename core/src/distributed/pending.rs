//! An exchange in progress, whose result must be waited for.

use super::process_group::ProcessGroup;
use crate::Result;
use c10d_sys::Work;

/// A value that other ranks are still writing to or reading from.
///
/// PyTorch's counterpart is the `Work` that `async_op=True` returns. There the tensor is at hand
/// before it is ready; here it is handed over to the exchange, and only [`wait`](Self::wait) gives
/// it back. An `all_reduce` goes on if this is dropped; a send or receive is given up, and the other
/// rank waits for it until its timeout.
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
    /// What the exchange works on; taken by `wait`.
    value: Option<T>,
    /// Taken by `wait`.
    work: Option<Work>,
    /// Says who is to blame when the exchange fails.
    group: ProcessGroup,
    operation: &'static str,
}

impl<T> Pending<T> {
    pub(super) fn new(value: T, work: Work, group: ProcessGroup, operation: &'static str) -> Self {
        Pending { value: Some(value), work: Some(work), group, operation }
    }

    /// Blocks until the exchange has ended and gives the value back. `Work.wait()`.
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) when a rank has died or the timeout is over.
    pub fn wait(mut self) -> Result<T> {
        match (self.value.take(), self.work.take()) {
            (Some(value), Some(work)) => {
                work.wait().map_err(|error| self.group.failed(self.operation, &error))?;
                Ok(value)
            }
            // `wait` consumes what it is called on.
            _ => unreachable!("a value that was waited for is gone"),
        }
    }

    /// Whether [`wait`](Self::wait) would return at once. `Work.is_completed()`.
    ///
    /// Of sends and receives gloo cannot tell, in Python neither: until they are waited for, this is
    /// false.
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
            // Nobody knows whether it will ever end.
            self.group.abandon();
        }
    }
}
