//! An exchange in progress, whose result must be waited for.

use crate::{Result, distributed::group::ProcessGroup};
use c10d_sys::Work;
use std::time::Duration;

/// A value that other ranks are still writing to or reading from.
///
/// PyTorch's counterpart is the `Work` that `async_op=True` returns. There, the tensor can be used before it is ready;
/// here, the exchange owns it until [`wait`](Self::wait) returns it. If somebody with another handle to the tensor
/// (`shallow_clone`) resizes it meanwhile, or replaces its data, it does not get the result.
///
/// If this is dropped, a collective goes on, but its result may be incomplete. A send or receive is
/// abandoned, and the other rank waits for it until its timeout.
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
#[must_use = "the value is ready only when `wait` has returned it"]
#[doc(alias = "Work")]
pub struct Pending<T> {
    /// Taken by `wait`.
    exchange: Option<(Work, Finish<T>)>,
    /// For messages, which the engine starts without a time limit.
    limit: Option<Duration>,
    /// Finds the rank at fault when the exchange fails.
    group: ProcessGroup,
    operation: &'static str,
}

/// Makes the value of an exchange that is over.
type Finish<T> = Box<dyn FnOnce(&Work) -> Result<T> + Send>;

impl<T: 'static> Pending<T> {
    /// Blocks until the exchange has finished, and returns the value. `Work.wait()`.
    ///
    /// NCCL's exchanges go on on the GPU, where later work waits for them. The host waits too if the
    /// handle has a time limit of its own ([`ProcessGroup::with_timeout`]), and for a barrier.
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) if a rank has died or the timeout is over.
    pub fn wait(mut self) -> Result<T> {
        let Some((work, finish)) = self.exchange.take() else {
            // `wait` consumes `self`.
            unreachable!("a value that was waited for is gone")
        };
        self.group.wait_on_host(self.operation, &work)?;
        work.wait(self.limit).map_err(|error| self.group.failed(self.operation, &error))?;
        finish(&work)
    }

    /// Whether [`wait`](Self::wait) would return at once. `Work.is_completed()`.
    ///
    /// gloo cannot tell for messages and, without shared memory, `reduce_scatter`: this is then false until the wait.
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) if the engine cannot tell.
    pub fn is_completed(&self) -> Result<bool> {
        self.exchange.as_ref().map_or(Ok(true), |(work, _)| {
            work.is_completed().map_err(|error| self.group.failed(self.operation, &error))
        })
    }

    /// The same exchange, with the value that `f` makes of this one.
    pub(crate) fn then<U>(mut self, f: impl FnOnce(T) -> Result<U> + Send + 'static) -> Pending<U> {
        let exchange = self.exchange.take().map(|(work, finish)| {
            let finish: Finish<U> = Box::new(move |work| finish(work).and_then(f));
            (work, finish)
        });
        let Pending { limit, ref group, operation, .. } = self;
        Pending { exchange, limit, group: group.clone(), operation }
    }

    /// With the time limit of its handle: the engine has started a message without one.
    pub(crate) fn limited(mut self) -> Self {
        self.limit = self.group.timeout;
        self
    }
}

impl ProcessGroup {
    /// What an exchange will give once it is over.
    pub(crate) fn pending<T>(
        &self,
        operation: &'static str,
        work: Result<Work, c10d_sys::Error>,
        finish: impl FnOnce(&Work) -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        let work = work.map_err(|error| self.failed(operation, &error))?;
        let exchange: Option<(Work, Finish<T>)> = Some((work, Box::new(finish)));
        Ok(Pending { exchange, limit: None, group: self.clone(), operation })
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.exchange.is_some() {
            self.group.inner.unfinished.set_unawaited();
        }
    }
}

debug_parts!(Pending<T>, self, operation: self.operation);
