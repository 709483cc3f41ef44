//! Ends gloo's waits for a rank that has died.
//!
//! Gloo makes an operation fail if its peer's connection closes, except at one moment (c10d-sys's
//! gloo.cpp describes it): the operation then waits for the timeout. Launchers end all ranks before
//! that; this is for programs without one.
//!
//! A closed connection alone says nothing: a rank that has finished closes its connections too,
//! while others may still pass on to each other what came from it. So each rank takes leave.

use super::members::Member;
use super::post_mortem::{ANSWER, in_time};
use super::store::Store;
use crate::Result;
use c10d_sys::ProcessGroup;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The key of the list of ranks that have left the group in good order.
const LEFT: &str = "left";

/// How long an operation may go on without a rank that it needs. Gloo itself needs less than a
/// second to notice what it does notice.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How often connections are looked at.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Watches over a group until it is dropped.
pub(super) struct Watch {
    thread: Option<JoinHandle<()>>,
    /// `None` only while it is being dropped.
    stop: Option<Sender<()>>,
}

impl Watch {
    /// Runs `watch`, which looks from time to time until the channel closes. `None` if there is no
    /// memory for a thread.
    pub(super) fn keep(watch: impl FnOnce(&Receiver<()>) + Send + 'static) -> Option<Watch> {
        let (stop, stopped) = mpsc::channel();
        let watch = move || watch(&stopped);
        let thread = thread::Builder::new().name("watch".into()).spawn(watch).ok()?;
        Some(Watch { thread: Some(thread), stop: Some(stop) })
    }
}

/// Watches over a group of gloo's.
pub(super) fn start(engine: ProcessGroup, store: Store, members: Arc<[Member]>) -> Option<Watch> {
    Watch::keep(move |stopped| watch(&engine, &store, &members, stopped))
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has not panicked: nothing in it can.
            let _ = thread.join();
        }
    }
}

fn watch(engine: &ProcessGroup, store: &Store, members: &[Member], stopped: &Receiver<()>) {
    while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let mut first = 0;
        while let Ok(Some(rank)) = engine.lost_peer(first, PATIENCE) {
            // Ranks that run Python do not take leave.
            if members.iter().any(|member| member.rank == rank) && !has_left(store, rank) {
                // It can only fail if there is no such rank.
                let _ = engine.fail_operations_with(rank);
            }
            first = rank + 1;
        }
    }
}

/// This rank has finished, and the others may go on without it.
pub(super) fn take_leave(store: &Store, rank: usize) {
    let store = store.clone();
    // Rank 0, which serves the store, may have ended before.
    in_time(ANSWER, move || store.engine().append(LEFT, format!("{rank}\n").as_bytes()));
}

/// If the store does not answer, the rank that serves it has ended as well.
pub(super) fn has_left(store: &Store, rank: usize) -> bool {
    let store = store.clone();
    let left = move || -> Result<bool> {
        // A connection of its own, since this process may be waiting in the other one.
        let store = store.try_clone()?;
        if !store.check(LEFT)? {
            return Ok(false);
        }
        let list = store.get(LEFT, ANSWER)?;
        Ok(String::from_utf8_lossy(&list).lines().any(|name| name == rank.to_string()))
    };
    in_time(ANSWER, left).and_then(Result::ok).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_took_leave_have_left() {
        let store = Store::from_env(ANSWER).unwrap();
        assert!(!has_left(&store, 1));
        take_leave(&store, 1);
        take_leave(&store, 12);
        assert_eq!([1, 2, 12].map(|rank| has_left(&store, rank)), [true, false, true]);
    }
}
