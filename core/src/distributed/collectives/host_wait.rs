//! Waiting on the host for what NCCL does on the GPU.
//!
//! `Work.wait` of NCCL's operations only makes the current stream wait, so that the host can go on queueing work: a
//! rank that does not come shows when something is read from the GPU, where nothing can say who it is. A call whose
//! result this process needs at once waits here, as PyTorch does with `TORCH_NCCL_BLOCKING_WAIT` or a timeout of its
//! own (`WorkNCCL::wait` in ProcessGroupNCCL.cpp), and looks at the others meanwhile.

use crate::distributed::fault::blame::Blame;
use crate::distributed::fault::in_time::{ANSWER, in_time};
use crate::distributed::fault::nccl_watch::{Suspicion, culprit};
use crate::distributed::fault::watch::{INTERVAL, PATIENCE};
use crate::distributed::group::{Backend, ProcessGroup};
use crate::{Event, Result};
use c10d_sys::{Error, ErrorKind, Work};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is asked whether the operation is over.
const POLL: Duration = Duration::from_millis(1);

/// How a wait has ended.
#[derive(Debug, PartialEq)]
enum Outcome {
    Over,
    TimedOut,
    Gone(Blame),
}

impl ProcessGroup {
    /// The same group, for calls whose results this process needs at once.
    pub(crate) fn on_host(&self) -> ProcessGroup {
        ProcessGroup { is_on_host: true, ..self.clone() }
    }

    /// With NCCL, waits until the operation is over, for a call [`on_host`](Self::on_host) or with its own time limit.
    pub(crate) fn wait_on_host(&self, operation: &'static str, work: &Work) -> Result<()> {
        if self.backend() != Backend::Nccl || !(self.is_on_host || self.timeout.is_some()) {
            return Ok(());
        }
        let limit = self.timeout();
        let culprit = || culprit(&self.inner.post_mortem, self.inner.store.engine());
        let outcome = wait(|| work.is_completed(), culprit, limit, INTERVAL, PATIENCE);
        let late = || Error::new(ErrorKind::Timeout, format!("timed out after {limit:?}"));
        let error = match outcome.map_err(|error| self.failed(operation, &error))? {
            Outcome::Over => return Ok(()),
            Outcome::TimedOut => self.failed(operation, &late()),
            Outcome::Gone(blame) => {
                self.given_up(operation, ("a rank has gone".into(), Some(blame)))
            }
        };
        // What NCCL waits for on the GPU will not come, and later work in the stream waits with it.
        let engine = self.engine().clone();
        in_time(ANSWER, move || engine.abort());
        Err(error)
    }

    /// The same for all that is queued on the GPU by now, on a group whose calls wait.
    pub(crate) fn wait_for_queued(&self, operation: &'static str) -> Result<()> {
        if self.backend() != Backend::Nccl || !self.is_on_host {
            return Ok(());
        }
        // If a rank has gone, the communicators are aborted, and the GPU continues with incomplete sums.
        Event::record(self.device())?.synchronize()?;
        if !self.inner.unfinished.has_failed() {
            return Ok(());
        }
        let aborted = Error::new(ErrorKind::Connection, "the exchange was aborted".to_owned());
        Err(self.failed(operation, &aborted))
    }
}

/// `culprit` finds a rank that will do nothing more.
fn wait<E>(
    is_over: impl Fn() -> std::result::Result<bool, E>,
    culprit: impl Fn() -> Option<Blame>,
    limit: Duration,
    interval: Duration,
    patience: Duration,
) -> std::result::Result<Outcome, E> {
    let start = Instant::now();
    let (mut looked, mut suspicion) = (start, Suspicion::default());
    while !is_over()? {
        if start.elapsed() > limit {
            return Ok(Outcome::TimedOut);
        }
        if looked.elapsed() >= interval {
            if let Some(blame) = suspicion.confirm(culprit(), patience) {
                return Ok(Outcome::Gone(blame));
            }
            looked = Instant::now();
        }
        thread::sleep(POLL);
    }
    Ok(Outcome::Over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::fault::nccl_watch::tests::{TICK, rank_1};
    use std::cell::Cell;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_operation_that_does_not_end_is_given_up_after_the_limit_or_when_a_rank_has_gone() {
        let never = || Ok::<_, Error>(false);
        assert_eq!(wait(never, || None, 9 * TICK, TICK, TICK).unwrap(), Outcome::TimedOut);
        let gone = rank_1().unwrap();
        assert_eq!(wait(never, rank_1, LONG, TICK, 5 * TICK).unwrap(), Outcome::Gone(gone));
    }

    #[test]
    fn a_rank_may_end_once_it_has_done_its_part() {
        let looked = Cell::new(0);
        let culprit = || {
            looked.set(looked.get() + 1);
            rank_1()
        };
        // It is over as soon as somebody has looked.
        let is_over = || Ok::<_, Error>(looked.get() > 0);
        assert_eq!(wait(is_over, culprit, LONG, TICK, LONG).unwrap(), Outcome::Over);
    }

    #[test]
    fn a_failure_of_the_operation_itself_ends_the_wait() {
        let failed = || Err(Error::new(ErrorKind::Connection, "NCCL communicator was aborted"));
        let error = wait(failed, || None, LONG, TICK, TICK).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
    }
}
