//! Questions to a store that may not answer.

use std::time::{Duration, Instant};
use std::{sync::mpsc, thread};

/// How much longer the store may take to answer. A store that is slow is no fault.
pub(crate) const ANSWER: Duration = Duration::from_millis(500);

/// Runs `f` on another thread, and gives up on it after `limit`.
pub(crate) fn in_time<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // The receiver is gone once the limit has passed.
    let run = move || drop(sender.send(f()));
    // Where memory is short, there may be none for another thread.
    thread::Builder::new().spawn(run).ok()?;
    receiver.recv_timeout(limit).ok()
}

pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
