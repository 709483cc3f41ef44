//! How all ranks come to the same verdict where the engine tells only some of them.

use c10d_sys::{Error, Store};
use std::time::Duration;

/// Under this key the ranks of this library are counted. Ranks that run Python take no part in
/// agreements and must not be waited for.
const RANKS: &str = "agreement/ranks";

const AGREED: &str = "";

/// To be called once by each rank, before it connects to the others.
pub(super) fn enrol(store: &Store) -> Result<(), Error> {
    store.add(RANKS, 1).map(|_| ())
}

/// Waits for every rank's opinion on `subject`, on which nobody has been asked before.
///
/// Gives the objection of one rank, with its number before it, if there is any. Every rank must
/// have connected to all others before.
pub(super) fn objection(
    store: &Store,
    subject: &str,
    rank: usize,
    own: Option<&str>,
    timeout: Duration,
) -> Result<Option<String>, Error> {
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
    let verdict = store.get(&verdict, timeout)?;
    let verdict = String::from_utf8_lossy(&verdict).into_owned();
    Ok((verdict != AGREED).then_some(verdict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// What each rank of a world learns, given what each thinks.
    fn verdicts(opinions: &[Option<&'static str>]) -> Vec<Option<String>> {
        let store = Arc::new(Store::hash().unwrap());
        opinions.iter().for_each(|_| enrol(&store).unwrap());
        let ranks: Vec<_> = opinions
            .iter()
            .enumerate()
            .map(|(rank, &own)| {
                let store = Arc::clone(&store);
                thread::spawn(move || {
                    objection(&store, "test", rank, own, Duration::from_secs(10)).unwrap()
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    }

    #[test]
    fn where_nobody_objects_all_agree() {
        assert_eq!(verdicts(&[None, None, None]), [None, None, None]);
    }

    #[test]
    fn one_objection_reaches_every_rank() {
        let expected = Some("rank 1: too small".to_owned());
        let all = verdicts(&[None, Some("too small"), None]);
        assert_eq!(all, [expected.clone(), expected.clone(), expected]);
    }

    #[test]
    fn a_rank_that_stays_away_is_waited_for_until_the_timeout() {
        let store = Store::hash().unwrap();
        enrol(&store).unwrap();
        enrol(&store).unwrap();
        objection(&store, "test", 0, None, Duration::from_millis(50)).unwrap_err();
    }
}
