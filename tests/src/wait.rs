//! Waiting for something to become true: without a sleep that hopes to be long enough, and without a
//! limit that a slow processor could miss.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks. Short against all that is waited for, long enough to leave the processor to
/// the job.
const INTERVAL: Duration = Duration::from_millis(10);

/// Looks until `look` finds something, and returns it; fails when `give_up` says so and a last look
/// finds nothing either, saying that `what` never came.
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
        if last {
            bail!("waited in vain until {what}");
        }
        sleep(INTERVAL);
    }
}

/// Gives up at this time: for what takes no computing, such as the end of a killed process.
pub fn past(deadline: Instant) -> impl FnMut() -> bool {
    move || Instant::now() >= deadline
}
