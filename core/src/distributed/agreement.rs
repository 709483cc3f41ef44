//! How all ranks reach the same verdict where the engine informs only some of them.

use super::process_group::ProcessGroup;
use c10d_sys::{Error, Store};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The key under which ranks of this library are counted. Ranks that run Python do not vote and
/// must not be waited for.
const RANKS: &str = "agreement/ranks";

const AGREED: &str = "";

/// Each rank calls this once, before it connects to the others.
///
/// Returns how many have been counted so far.
pub(super) fn enrol(store: &Store) -> Result<usize, Error> {
    Ok(store.add(RANKS, 1)? as usize)
}

/// How often a rank checks for the verdict.
const INTERVAL: Duration = Duration::from_millis(1);

/// How often a rank that waits outside the engine checks that the others are still running.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(200);

impl ProcessGroup {
    /// Tells every rank if one objects to going on. A collective of the ranks of this library.
    pub(crate) fn agree(
        &self,
        operation: &'static str,
        objection: Option<&str>,
    ) -> crate::Result<()> {
        let subject = self.inner.agreements.fetch_add(1, Ordering::Relaxed).to_string();
        let start = Instant::now();
        let mut looked = start;
        let give_up = || {
            if start.elapsed() > self.inner.place.timeout {
                let timeout = self.inner.place.timeout;
                return Some((format!("not all ranks arrived within {timeout:?}"), None));
            }
            if looked.elapsed() < LIVENESS_INTERVAL {
                return None;
            }
            looked = Instant::now();
            let gone = self.inner.post_mortem.gone()?;
            Some(("a rank has gone".to_owned(), Some(gone)))
        };
        let (message, blame) = match reach_verdict(
            self.inner.store.engine(),
            &subject,
            self.job_rank(),
            objection,
            give_up,
        ) {
            Ok(Verdict::Agreed) => return Ok(()),
            Ok(Verdict::Objection(message)) => (message, None),
            Ok(Verdict::GivenUp(reason)) => reason,
            Err(error) => return Err(self.failed(operation, &error)),
        };
        self.abandon();
        Err(crate::Error::Collective { rank: self.inner.place.job_rank, operation, message, blame })
    }

    /// What rank 0 passes here, while this rank passes `own`. `None` on rank 0 itself, and if rank
    /// 0 runs Python. Must be followed by [`agree`](Self::agree).
    pub(crate) fn compare_with_rank_0(
        &self,
        operation: &'static str,
        own: &str,
    ) -> crate::Result<Option<String>> {
        let key = format!("comparison/{}", self.inner.agreements.load(Ordering::Relaxed));
        let store = self.inner.store.engine();
        let compare = || match self.rank() {
            0 => store.set(&key, own.as_bytes()).map(|()| None),
            _ if !self.inner.post_mortem.knows(0)? => Ok(None),
            _ => {
                let theirs = store.get(&key, self.inner.place.timeout)?;
                Ok(Some(String::from_utf8_lossy(&theirs).into_owned()))
            }
        };
        compare().map_err(|error: Error| self.failed(operation, &error))
    }
}

/// Waits for the votes of all ranks on `subject`, which must be new.
///
/// Returns the objection of one rank, prefixed with its number, if there is one. Every rank must be
/// connected to all others already. `give_up` is called from time to time and ends the wait when it
/// returns something.
fn reach_verdict<G>(
    store: &Store,
    subject: &str,
    rank: usize,
    own: Option<&str>,
    mut give_up: impl FnMut() -> Option<G>,
) -> Result<Verdict<G>, Error> {
    let verdict = format!("agreement/{subject}/verdict");
    match own {
        Some(objection) => store.set(&verdict, format!("rank {rank}: {objection}").as_bytes())?,
        None => {
            let agreed = store.add(&format!("agreement/{subject}/agreed"), 1)?;
            if agreed == store.add(RANKS, 0)? {
                store.set(&verdict, AGREED.as_bytes())?;
            }
        }
    }
    while !store.check(&verdict)? {
        if let Some(reason) = give_up() {
            // The missing rank may have been the last to agree and then have ended.
            if store.check(&verdict)? {
                break;
            }
            return Ok(Verdict::GivenUp(reason));
        }
        std::thread::sleep(INTERVAL);
    }
    let text = store.get(&verdict, Duration::from_secs(1))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let verdict = if text == AGREED { Verdict::Agreed } else { Verdict::Objection(text) };
    stay_until_all_know(store, subject, rank, give_up);
    Ok(verdict)
}

/// Rank 0 serves the store: if it ended now, the others could no longer read the verdict. Errors
/// here do not change the verdict.
fn stay_until_all_know<G>(
    store: &Store,
    subject: &str,
    rank: usize,
    mut give_up: impl FnMut() -> Option<G>,
) {
    let known = format!("agreement/{subject}/known");
    let all_know = |own| Ok::<_, Error>(store.add(&known, own)? >= store.add(RANKS, 0)?);
    let mut done = all_know(1).unwrap_or(true);
    while rank == 0 && !done && give_up().is_none() {
        std::thread::sleep(INTERVAL);
        done = all_know(0).unwrap_or(true);
    }
}

/// The result of a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict<G> {
    /// Nobody objects.
    Agreed,
    /// What one rank objects to, with its number.
    Objection(String),
    /// Why the wait ended.
    GivenUp(G),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// The verdict on each rank of a world, given each rank's vote.
    fn verdicts(opinions: &[Option<&'static str>]) -> Vec<Verdict<()>> {
        let store = Arc::new(Store::hash().unwrap());
        for counted in 1..=opinions.len() {
            assert_eq!(enrol(&store).unwrap(), counted);
        }
        let ranks: Vec<_> = opinions
            .iter()
            .enumerate()
            .map(|(rank, &own)| {
                let store = Arc::clone(&store);
                thread::spawn(move || reach_verdict(&store, "test", rank, own, || None).unwrap())
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    }

    #[test]
    fn where_nobody_objects_all_agree() {
        assert_eq!(verdicts(&[None, None, None]), [const { Verdict::Agreed }; 3]);
    }

    #[test]
    fn one_objection_reaches_every_rank() {
        let all = verdicts(&[None, Some("too small"), None]);
        for verdict in all {
            assert_eq!(verdict, Verdict::Objection("rank 1: too small".into()));
        }
    }

    #[test]
    fn rank_0_stays_until_all_know_the_verdict() {
        let store = Arc::new(Store::hash().unwrap());
        enrol(&store).unwrap();
        enrol(&store).unwrap();
        let served = Arc::clone(&store);
        let rank_0 =
            thread::spawn(move || reach_verdict(&served, "test", 0, None, || None::<()>).unwrap());
        // Rank 1 agrees but has not read the verdict yet.
        let wait_for = |key| {
            while !store.check(key).unwrap() {
                thread::sleep(INTERVAL);
            }
        };
        wait_for("agreement/test/agreed");
        store.set("agreement/test/verdict", AGREED.as_bytes()).unwrap();
        wait_for("agreement/test/known");
        assert!(!rank_0.is_finished());
        store.add("agreement/test/known", 1).unwrap();
        assert_eq!(rank_0.join().unwrap(), Verdict::Agreed);
    }

    #[test]
    fn a_rank_that_stays_away_is_waited_for_until_there_is_a_reason_to_give_up() {
        let store = Store::hash().unwrap();
        enrol(&store).unwrap();
        enrol(&store).unwrap();
        let mut patience = 3;
        let verdict = reach_verdict(&store, "test", 0, None, || {
            patience -= 1;
            (patience == 0).then_some("it has died")
        });
        assert_eq!(verdict.unwrap(), Verdict::GivenUp("it has died"));
    }
}
