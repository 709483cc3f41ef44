//! How long the ranks of one host take to meet.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Trial;
use crate::job::Job;
use crate::programs::{example, launch};

/// Returns the time that the ranks themselves measure, once each has loaded libtorch.
pub(super) fn ranks<const RANKS: usize>(_: &mut Trial) -> Result<Duration> {
    let ended = Job::new()?.run(launch(RANKS, &example("start_up", [])?)?)?.expect_success()?;
    let seconds = ended.stdout.split_once("ready ").and_then(|(_, rest)| rest.split_once(" s "));
    let (seconds, _) = seconds.with_context(|| format!("no time is printed: {ended}"))?;
    Ok(Duration::from_secs_f64(seconds.parse()?))
}
