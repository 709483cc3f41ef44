//! Ends NCCL's waits for a rank that has died.
//!
//! A training step only queues its exchanges. If a rank dies, the GPUs of the others wait for it, and the host hangs
//! where it next reads from the GPU, such as the loss. PyTorch's watchdog ends the process after the timeout, and
//! cannot say whom it waited for. Here, a thread looks after the others while a collective does not end, and aborts the
//! communicators when one has reported a fault, or has ended on this host: the host goes on, and the next call on the
//! group fails with the rank at fault. A rank of another host that ends without a report is left to the watchdog.

use super::blame::Blame;
use super::in_time::{ANSWER, in_time};
use super::watch::{INTERVAL, PATIENCE, Watch, Watched, has_left};
use super::{post_mortem::PostMortem, unfinished::Unfinished};
use c10d_sys::{Progress, Store};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Watches over a group of NCCL's, which has failed once its communicators are aborted.
pub(crate) fn start(
    (engine, store, post_mortem): Watched,
    unfinished: Arc<Unfinished>,
) -> Option<Watch> {
    Watch::keep(move |stopped| {
        let progress = || engine.progress().ok();
        let culprit = || culprit(&post_mortem, &store);
        if let Some(blame) = watch(stopped, INTERVAL, PATIENCE, progress, culprit) {
            // Before the host goes on, so that nothing that follows from this is taken for the cause.
            post_mortem.remember(&blame);
            unfinished.set_failed();
            in_time(ANSWER, move || engine.abort());
        }
    })
}

/// A rank that will do nothing more, and has not finished in good order.
pub(crate) fn culprit(post_mortem: &PostMortem, store: &Arc<Store>) -> Option<Blame> {
    let blame = post_mortem.culprit()?;
    let member =
        post_mortem.search.members.iter().find(|member| Some(member.name) == blame.rank)?;
    (has_left(store, member.rank) != Some(true)).then_some(blame)
}

/// Since when somebody is suspected.
#[derive(Default)]
pub(crate) struct Suspicion(Option<Instant>);

impl Suspicion {
    /// A rank that has done its part may end before others have, so one is to blame only after `patience`.
    pub(crate) fn confirm(&mut self, suspect: Option<Blame>, patience: Duration) -> Option<Blame> {
        let Some(suspect) = suspect else {
            self.0 = None;
            return None;
        };
        (self.0.get_or_insert_with(Instant::now).elapsed() >= patience).then_some(suspect)
    }
}

/// Returns the rank that has gone while an exchange waits for it, or `None` when stopped. `progress` counts exchanges.
fn watch(
    stopped: &Receiver<()>,
    interval: Duration,
    patience: Duration,
    progress: impl Fn() -> Option<Progress>,
    culprit: impl Fn() -> Option<Blame>,
) -> Option<Blame> {
    let (mut finished, mut suspicion) = (None, Suspicion::default());
    while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        let now = progress()?;
        let stands_still = now.finished != now.begun && finished == Some(now.finished);
        finished = Some(now.finished);
        let suspect = if stands_still { culprit() } else { None };
        if let Some(blame) = suspicion.confirm(suspect, patience) {
            return Some(blame);
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::{cell::Cell, sync::mpsc};

    pub(crate) const TICK: Duration = Duration::from_millis(1);

    pub(crate) fn rank_1() -> Option<Blame> {
        Some(Blame { rank: Some(1), what: "rank 1 (pid 7) has ended".into() })
    }

    /// What is found if these are the numbers of begun and finished exchanges, and the last stay, in a hundred looks.
    fn found(numbers: &[(i64, i64)], culprit: fn() -> Option<Blame>) -> Option<Blame> {
        let (stop, stopped) = mpsc::channel();
        let (stop, looks) = (Cell::new(Some(stop)), Cell::new(0));
        let progress = || {
            let look = looks.replace(looks.get() + 1);
            if look == 100 {
                drop(stop.take());
            }
            let (begun, finished) = numbers[look.min(numbers.len() - 1)];
            Some(Progress { begun, finished })
        };
        watch(&stopped, TICK, 5 * TICK, progress, culprit)
    }

    #[test]
    fn a_rank_that_has_gone_is_named_by_an_exchange_that_waits_for_it_and_nobody_otherwise() {
        assert_eq!(found(&[(0, 0), (1, 0)], rank_1), rank_1());
        assert_eq!(found(&[(1, 0), (2, 1), (2, 2)], rank_1), None, "nothing waits for it");
        assert_eq!(found(&[(1, 0)], || None), None, "all ranks run");
    }
}
