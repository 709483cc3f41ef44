//! Waiting for something to become true, with a deadline: never a sleep that hopes to be long
//! enough.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks. Short against all that is waited for, long enough to leave the processor to
/// the job.
const INTERVAL: Duration = Duration::from_millis(10);

/// Looks until `look` finds something, and returns it; fails at the deadline, saying `what` never
/// came.
pub fn until<T>(
    what: &str,
    deadline: Instant,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("waited in vain until {what}");
        }
        sleep(INTERVAL);
    }
}
