//! Waiting for something to become true, without a sleep that might be too short, and without a
//! time limit that a slow processor could exceed.

use crate::prelude::*;
use std::thread::sleep;

/// The time between two checks: short compared with anything that is waited for, but long enough to
/// leave the processor to the job.
const INTERVAL: Duration = Duration::from_millis(10);

/// Calls `look` until it finds something, and returns that. Fails with the message that `what`
/// never came if `give_up` returns true and a last look finds nothing either.
pub fn until<T>(
    what: &str,
    mut give_up: impl FnMut() -> bool,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    loop {
        let last = give_up();
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(!last, "waited in vain until {what}");
        sleep(INTERVAL);
    }
}

/// Gives up at this time. For events that take no computing, such as the end of a killed process.
pub fn past(deadline: Instant) -> impl FnMut() -> bool {
    move || Instant::now() >= deadline
}
