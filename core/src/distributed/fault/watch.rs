//! Ends gloo's waits for a rank that has died.
//!
//! Gloo makes an operation fail if its peer's connection closes, except at one moment (c10d-sys's gloo.cpp describes
//! it): the operation then waits for the timeout. Launchers end all ranks before; this is for programs without one.
//!
//! A closed connection alone says nothing: a rank that has finished closes its connections too,
//! while others may still pass on to each other what came from it. So each rank says that it leaves.

use super::in_time::{ANSWER, in_time};
use super::post_mortem::{PostMortem, has_reported_a_fault};
use c10d_sys::{Error, ProcessGroup, Store};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::{sync::Arc, time::Duration};

/// The key of the list of ranks that have left the group in good order.
const LEFT: &str = "left";

/// How long an operation may go on without a rank that it needs. What gloo itself notices, it notices within a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often connections are looked at.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// How many unanswered questions mean that the store has ended with its server; one that is only slow is no fault.
const SILENCE: u32 = 30;

/// A group, its store, and what finds the rank at fault.
pub(crate) type Watched = (ProcessGroup, Arc<Store>, Arc<PostMortem>);

/// Watches over a group until it is dropped. `None` only while that happens.
pub(crate) struct Watch(Option<(Sender<()>, JoinHandle<()>)>);

impl Watch {
    /// Runs `watch`, which looks from time to time until the channel closes. `None` if there is no memory for a thread.
    pub(crate) fn keep(watch: impl FnOnce(&Receiver<()>) + Send + 'static) -> Option<Watch> {
        let (stop, stopped) = mpsc::channel();
        let watch = move || watch(&stopped);
        let thread = thread::Builder::new().name("watch".into()).spawn(watch).ok()?;
        Some(Watch(Some((stop, thread))))
    }
}

/// Watches over a group of gloo's.
pub(crate) fn start((engine, store, post_mortem): Watched) -> Option<Watch> {
    Watch::keep(move |stopped| {
        let members = &post_mortem.search.members;
        let mut unanswered = 0;
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let mut first = 0;
            while let Ok(Some(rank)) = engine.lost_peer(first, PATIENCE) {
                first = rank + 1;
                if members.iter().all(|member| member.rank != rank) {
                    // It runs Python, where ranks do not say that they leave.
                    continue;
                }
                let left = has_left(&store, rank);
                unanswered = if left.is_none() { unanswered + 1 } else { 0 };
                if left == Some(false) || unanswered >= SILENCE {
                    // It can only fail if there is no such rank.
                    let _ = engine.fail_operations_with(rank);
                }
            }
        }
    })
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // An error would be a panic of the thread, of which there is nothing to do here.
            let _ = thread.join();
        }
    }
}

/// This rank has finished, and the others may go on without it.
pub(crate) fn leave(store: &Arc<Store>, rank: usize) {
    let store = Arc::clone(store);
    // Rank 0, which serves the store, may have ended before.
    in_time(ANSWER, move || store.append(LEFT, format!("{rank}\n").as_bytes()));
}

/// Whether this rank has left without a fault, which it reports after dropping its groups. `None` without an answer.
pub(crate) fn has_left(store: &Arc<Store>, rank: usize) -> Option<bool> {
    let store = Arc::clone(store);
    let left = move || -> Result<bool, Error> {
        // A connection of its own, since this process may be waiting in the other one.
        let store = store.try_clone()?;
        if !store.check(LEFT)? {
            return Ok(false);
        }
        let list = store.get(LEFT, ANSWER)?;
        let is_listed = String::from_utf8_lossy(&list).lines().any(|name| name == rank.to_string());
        Ok(is_listed && !has_reported_a_fault(&store, rank)?)
    };
    in_time(ANSWER, left)?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_said_so_and_report_no_fault_have_left() {
        let store = Arc::new(Store::hash().unwrap());
        assert_eq!(has_left(&store, 1), Some(false));
        leave(&store, 1);
        leave(&store, 12);
        assert_eq!([1, 2, 12].map(|rank| has_left(&store, rank)), [true, false, true].map(Some));
        PostMortem::new(Arc::clone(&store), 1, 2, Vec::new(), false).report("no disk", ANSWER);
        assert_eq!(has_left(&store, 1), Some(false));
    }
}
