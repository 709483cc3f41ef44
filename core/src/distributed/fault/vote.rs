//! The votes of all ranks on going on, in the job's store.

use c10d_sys::{Error, ErrorKind, LONGEST_TIMEOUT, Store};
use std::time::Duration;

/// The key under which ranks of this library are counted. Ranks that run Python do not vote and must not be waited for.
const RANKS: &str = "agreement/ranks";

const AGREED: &str = "";

/// How long a rank waits in the store before it looks whether the others still run. After a loss, the survivors' next
/// step can come this much later.
const LATE: Duration = Duration::from_millis(50);

/// Each rank calls this once, before it connects to the others. Returns how many have so far.
pub(crate) fn enrol(store: &Store) -> Result<usize, Error> {
    Ok(store.add(RANKS, 1)? as usize)
}

/// Waits for the votes of all ranks on `subject`, which must be new, and returns what one of them objects to, if any
/// does, or why the wait ended. Every rank must be connected to all others already. `give_up` is that of [`wait_for`].
pub(crate) fn reach_verdict<G>(
    store: &Store,
    subject: &str,
    rank: usize,
    own: Option<&str>,
    give_up: impl Fn() -> Option<G>,
) -> Result<Result<Option<String>, G>, Error> {
    let verdict = format!("agreement/{subject}/verdict");
    match own {
        Some(objection) => store.set(&verdict, described(rank, objection).as_bytes())?,
        None => {
            let agreed = store.add(&format!("agreement/{subject}/agreed"), 1)?;
            if agreed == store.add(RANKS, 0)? {
                store.set(&verdict, AGREED.as_bytes())?;
            }
        }
    }
    let text = wait_for(store, &verdict, give_up)?;
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    Ok(text.map(|text| Some(text).filter(|text| text != AGREED)))
}

/// An objection, with the rank's number.
pub(crate) fn described(rank: usize, objection: &str) -> String {
    format!("rank {rank}: {objection}")
}

/// The value of a key, once set. `give_up` is called now and then, and ends the wait when it returns something.
pub(crate) fn wait_for<G>(
    store: &Store,
    key: &str,
    give_up: impl Fn() -> Option<G>,
) -> Result<Result<Vec<u8>, G>, Error> {
    loop {
        match store.wait(&[key], LATE) {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            Err(error) => return Err(error),
            Ok(()) => break,
        }
        let reason = give_up();
        // Last: a missing rank may have set the key and then ended, and a slow network may take longer than `LATE`.
        if store.check(key)? {
            break;
        }
        if let Some(reason) = reason {
            return Ok(Err(reason));
        }
    }
    store.get(key, LONGEST_TIMEOUT).map(Ok)
}

/// If the rank that serves the store ended now, the others could not read the verdict. Errors here do not change it.
///
/// Each rank appends itself to a list once it knows, and may then end. `may_leave` is asked now and then, with that.
pub(crate) fn stay_until_all_know(
    store: &Store,
    subject: &str,
    rank: usize,
    serves_store: bool,
    may_leave: impl Fn(&[usize]) -> bool,
) {
    let know = format!("agreement/{subject}/know");
    let all_know = format!("agreement/{subject}/all_know");
    let knowing = || -> Result<Vec<usize>, Error> {
        let list = store.get(&know, LONGEST_TIMEOUT)?;
        Ok(String::from_utf8_lossy(&list).lines().filter_map(|rank| rank.parse().ok()).collect())
    };
    let is_last = || {
        store.append(&know, format!("{rank}\n").as_bytes())?;
        Ok::<_, Error>(knowing()?.len() as i64 >= store.add(RANKS, 0)?)
    };
    match is_last() {
        Ok(true) => drop(store.set(&all_know, &[])),
        Ok(false) if serves_store => {
            let give_up = || knowing().is_ok_and(|knowing| may_leave(&knowing)).then_some(());
            drop(wait_for(store, &all_know, give_up));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, sync::Arc, thread};

    #[test]
    fn the_rank_that_serves_the_store_stays_until_every_rank_knows_the_verdict_or_may_be_left() {
        let store = Arc::new(Store::hash().unwrap());
        assert_eq!([(); 3].map(|()| enrol(&store).unwrap()), [1, 2, 3]);
        let stay = |subject, may_leave: fn(&[usize]) -> bool| {
            let served = Arc::clone(&store);
            let stay = move || stay_until_all_know(&served, subject, 0, true, may_leave);
            let rank_0 = thread::spawn(stay);
            store.wait(&[format!("agreement/{subject}/know")], LONGEST_TIMEOUT).unwrap();
            rank_0
        };
        let reads = |subject, rank| stay_until_all_know(&store, subject, rank, false, |_| false);

        let rank_0 = stay("all", |_| false);
        reads("all", 1);
        assert!(!rank_0.is_finished());
        reads("all", 2);
        rank_0.join().unwrap();

        // Rank 2 never comes. That rank 1 has come is what rank 0 leaves for.
        let rank_0 = stay("one", |knowing| knowing.contains(&1));
        assert!(!rank_0.is_finished());
        reads("one", 1);
        rank_0.join().unwrap();
    }

    #[test]
    fn a_rank_that_stays_away_is_waited_for_until_there_is_a_reason_to_give_up() {
        let store = Store::hash().unwrap();
        enrol(&store).unwrap();
        enrol(&store).unwrap();
        let asked = Cell::new(0);
        let verdict = reach_verdict(&store, "test", 0, None, || {
            asked.set(asked.get() + 1);
            (asked.get() == 3).then_some("it has died")
        });
        assert_eq!(verdict.unwrap(), Err("it has died"));
    }
}
