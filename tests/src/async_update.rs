//! What async-update's methods write if they are started with [`METRICS`].

use crate::programs::{as_rank, async_update, free_port, launch};
use crate::training::{events, wait_for_steps};
use crate::{Job, Process, expect_all_succeed, prelude::*};

pub const METRICS: &str = "--metrics=metrics";

/// Runs a method on `ranks` ranks to its end, with metrics.
pub fn trained(ranks: usize, flags: &str) -> Result<Job> {
    Job::done(launch(ranks, &async_update(flags.split(' ').chain([METRICS]))?)?)
}

/// Starts the ranks of a method, with metrics, without a launcher, which would end all of them when one is lost.
pub fn started(job: &Job, ranks: usize, flags: &str) -> Result<Vec<Process>> {
    (0..ranks).map(starter(job, ranks, flags)?).collect()
}

/// What starts one such rank at a time.
pub fn starter(job: &Job, ranks: usize, flags: &str) -> Result<impl Fn(usize) -> Result<Process>> {
    let port = free_port()?;
    let program = move || async_update(flags.split(' ').chain([METRICS]));
    Ok(move |rank| job.start(as_rank(program()?, rank, ranks, port)))
}

/// Trains on `ranks` ranks, of which those from `late` on come when the one before them has taken this many steps.
pub fn trained_with_late(ranks: usize, flags: &str, late: usize, steps: usize) -> Result<Job> {
    let job = Job::new()?;
    let start = starter(&job, ranks, flags)?;
    let mut all = (0..late).map(&start).collect::<Result<Vec<_>>>()?;
    wait_for_steps(&job, late - 1..late, steps)?;
    all.extend((late..ranks).map(start).collect::<Result<Vec<_>>>()?);
    expect_all_succeed(all)?;
    Ok(job)
}

/// A number in the event `outcome` that rank 0 writes at the end.
pub fn outcome(job: &Job, name: &str) -> Result<f64> {
    let number = |event: &Value| event[name].as_f64();
    events(job.directory(), 0, "outcome", number)?.pop().context("no outcome")
}
