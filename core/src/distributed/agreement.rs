//! How all ranks reach the same verdict where the engine informs only some of them.

use super::post_mortem::Blame;
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

/// How long the store may take to give a value that is there.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a wait has ended, and which rank is at fault if that is known.
type Reason = (String, Option<Blame>);

impl ProcessGroup {
    /// Tells every rank if one objects to going on. A collective of the ranks of this library.
    pub(crate) fn agree(
        &self,
        operation: &'static str,
        objection: Option<&str>,
    ) -> crate::Result<()> {
        let subject = self.inner.agreements.fetch_add(1, Ordering::Relaxed).to_string();
        let (message, blame) = match reach_verdict(
            self.inner.store.engine(),
            &subject,
            self.job_rank(),
            objection,
            self.patience(),
        ) {
            Ok(Verdict::Agreed) => return Ok(()),
            Ok(Verdict::Objection(message)) => (message, None),
            Ok(Verdict::GivenUp(reason)) => reason,
            Err(error) => return Err(self.failed(operation, &error)),
        };
        Err(self.not_agreed(operation, message, blame))
    }

    /// Returns why not to wait any longer outside the engine, once there is a reason: the timeout
    /// is over, or a rank has gone.
    fn patience(&self) -> impl FnMut() -> Option<Reason> {
        let start = Instant::now();
        let mut looked = start;
        move || {
            let timeout = self.timeout();
            if start.elapsed() > timeout {
                return Some((format!("not all ranks arrived within {timeout:?}"), None));
            }
            if looked.elapsed() < LIVENESS_INTERVAL {
                return None;
            }
            looked = Instant::now();
            let gone = self.inner.post_mortem.gone()?;
            Some(("a rank has gone".to_owned(), Some(gone)))
        }
    }

    fn not_agreed(
        &self,
        operation: &'static str,
        message: String,
        blame: Option<Blame>,
    ) -> crate::Error {
        self.abandon();
        crate::Error::collective(self.job_rank(), operation, message, blame)
    }

    /// An error if one of these ranks runs Python, which cannot answer `operation`: the call would
    /// wait until the timeout. Ranks that run Python leave no identity in the store.
    pub(crate) fn refuse_python(
        &self,
        operation: &'static str,
        ranks: impl IntoIterator<Item = usize>,
    ) -> crate::Result<()> {
        let python = match self.inner.python_ranks.get() {
            Some(python) => python,
            None => {
                let mut python = Vec::new();
                for rank in 0..self.world_size() {
                    let known = self.inner.post_mortem.knows(rank);
                    if !known.map_err(|error| self.failed(operation, &error))? {
                        python.push(rank);
                    }
                }
                self.inner.python_ranks.get_or_init(|| python)
            }
        };
        match ranks.into_iter().find(|rank| python.contains(rank)) {
            None => Ok(()),
            Some(rank) => Err(crate::Error::argument(
                operation,
                format!("called with rank {rank}, which runs Python"),
                "called where all ranks use this library, because Python cannot answer it",
            )),
        }
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
        let compare = || {
            if self.rank() == 0 {
                return store.set(&key, own.as_bytes()).map(|()| Ok(None));
            }
            if !self.inner.post_mortem.knows(0)? {
                return Ok(Ok(None));
            }
            let mut give_up = self.patience();
            while !store.check(&key)? {
                if let Some(reason) = give_up() {
                    return Ok(Err(reason));
                }
                std::thread::sleep(INTERVAL);
            }
            let theirs = store.get(&key, ANSWER)?;
            Ok(Ok(Some(String::from_utf8_lossy(&theirs).into_owned())))
        };
        compare()
            .map_err(|error: Error| self.failed(operation, &error))?
            .map_err(|(message, blame)| self.not_agreed(operation, message, blame))
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
    let text = store.get(&verdict, ANSWER)?;
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
