//! How long the ranks of one host take to meet.

use super::*;
use crate::programs::between;

/// How much longer 64 ranks may take than 8.
const GROWTH: u32 = 10;

/// Starts 8 ranks, then more. Returns the time of 64.
pub(super) fn more_and_more_ranks(trial: &mut Trial) -> Result<Duration> {
    let few = ready(trial, 8)?;
    for ranks in [16, 32] {
        ready(trial, ranks)?;
    }
    let many = ready(trial, 64)?;
    ensure!(many < GROWTH * few, "8 ranks took {few:?}, 64 took {many:?}");
    Ok(many)
}

/// The time that the ranks themselves measure, once each has loaded libtorch.
fn ready(trial: &mut Trial, ranks: usize) -> Result<Duration> {
    let ended = Job::new()?.run(launch(ranks, &example("start_up", [])?)?)?;
    trial.log.push_str(&format!("{ended}\n\n"));
    let ended = ended.expect_success()?;
    Ok(Duration::from_secs_f64(between(&ended.stdout, "ready ", " s ")?.parse()?))
}
