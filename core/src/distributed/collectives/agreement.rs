//! How all ranks reach the same verdict where the engine informs only some of them.

use crate::distributed::fault::vote::{described, reach_verdict, stay_until_all_know, wait_for};
use crate::distributed::fault::{blame::Reason, members::Member};
use crate::{Error, Result, distributed::group::ProcessGroup};
use std::{sync::atomic::Ordering, time::Instant};

impl ProcessGroup {
    /// Tells every rank if one objects to going on. A collective of the ranks of this library.
    pub(crate) fn agree(&self, operation: &'static str, objection: Option<&str>) -> Result<()> {
        self.expect_all()?;
        let subject = self.inner.agreements.fetch_add(1, Ordering::Relaxed).to_string();
        if let Some(objection) = objection {
            self.report(objection);
        }
        let (store, rank, start) = (self.inner.store.engine(), self.job_rank(), Instant::now());
        // The store may be a Python rank's, which does not wait for this one: where nobody else votes, it is not asked.
        let verdict = if self.inner.post_mortem.search.members.len() == 1 {
            Ok(objection.map(|objection| described(rank, objection)))
        } else {
            let verdict = reach_verdict(store, &subject, rank, objection, self.patience())
                .map_err(|error| self.failed(operation, &error))?;
            if verdict.is_ok() {
                let serves_store = self.inner.post_mortem.search.serves_store;
                stay_until_all_know(store, &subject, rank, serves_store, |knowing| {
                    // A rank that has learned of a loss may have left without reading the verdict.
                    self.inner.unfinished.is_cancelled()
                        || start.elapsed() > self.timeout()
                        || self.inner.post_mortem.all_gone_but(knowing)
                });
            }
            verdict
        };
        match verdict {
            Ok(None) => Ok(()),
            Ok(Some(message)) => Err(self.given_up(operation, (message, None))),
            Err(reason) => Err(self.given_up(operation, reason)),
        }
    }

    /// Fails if a rank of an elastic job has left for another group. Those who wait in the store do not hear of that.
    fn expect_all(&self) -> Result<()> {
        if self.inner.post_mortem.is_elastic { self.barrier() } else { Ok(()) }
    }

    /// Returns why not to wait any longer outside the engine: the timeout is over, or a rank has gone.
    fn patience(&self) -> impl Fn() -> Option<Reason> {
        let start = Instant::now();
        move || {
            let timeout = self.timeout();
            if start.elapsed() > timeout {
                let gone = self.inner.post_mortem.gone(Member::gone);
                return Some((format!("not all ranks arrived within {timeout:?}"), gone));
            }
            if self.inner.unfinished.is_cancelled() {
                return Some(("a rank is gone".to_owned(), None));
            }
            let gone = self.inner.post_mortem.gone(Member::ended)?;
            Some(("a rank has gone".to_owned(), Some(gone)))
        }
    }

    /// Whether a rank of this group runs Python.
    pub(crate) fn has_python(&self) -> bool {
        self.inner.post_mortem.python_ranks().next().is_some()
    }

    /// An error if one of these ranks runs Python, which cannot answer `operation`: it would wait until the timeout.
    pub(crate) fn refuse_python(
        &self,
        operation: &'static str,
        ranks: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        let python: Vec<_> = self.inner.post_mortem.python_ranks().collect();
        let Some(rank) = ranks.into_iter().find(|rank| python.contains(rank)) else {
            return Ok(());
        };
        let found = format!("called with rank {rank}, which runs Python");
        let expected = "called where all ranks use this library, because Python cannot answer it";
        Err(Error::argument(operation, found, expected))
    }

    /// What rank 0 passes here. `None` on rank 0 itself, and if it runs Python. [`agree`](Self::agree) must follow.
    pub(crate) fn compare_with_rank_0(
        &self,
        operation: &'static str,
        own: &str,
    ) -> Result<Option<String>> {
        self.expect_all()?;
        let key = format!("comparison/{}", self.inner.agreements.load(Ordering::Relaxed));
        let store = self.inner.store.engine();
        let compare = || {
            if self.rank() == 0 {
                return store.set(&key, own.as_bytes()).map(|()| Ok(None));
            }
            if self.inner.post_mortem.python_ranks().any(|rank| rank == 0) {
                return Ok(Ok(None));
            }
            let theirs = wait_for(store, &key, self.patience())?;
            Ok(theirs.map(|theirs| Some(String::from_utf8_lossy(&theirs).into_owned())))
        };
        compare()
            .map_err(|error: c10d_sys::Error| self.failed(operation, &error))?
            .map_err(|reason| self.given_up(operation, reason))
    }
}
