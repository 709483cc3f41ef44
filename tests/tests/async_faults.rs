//! The methods of async-update in which a server keeps the model: what happens to the other ranks
//! when one is killed, stopped or late.

use crate::prelude::*;
use tests::async_update::{outcome, started, starter, trained_with_late};

/// After this many steps a rank is certainly training.
const STEPS: usize = 5;

/// How long the remaining ranks may take to end.
const SOON: Duration = Duration::from_secs(5);

/// `--timeout=5`: short, since gloo can miss the failure of a send (see `ProcessGroup::send`), and
/// then a lost rank is noticed only after the timeout.
const TIMEOUT: Duration = Duration::from_secs(5);

/// For each update of the server's model, the rank that the gradients came from.
fn who_updated(directory: &Path) -> Result<Vec<u64>> {
    events(directory, 0, "update", |update| update["worker"].as_u64())
}

/// When the worker is killed, all batches have been given out, and the other has asked for more.
#[test]
fn when_a_worker_is_killed_at_the_end_the_other_does_its_batches() -> Result<()> {
    let job = Job::new()?;
    // 250 batches: worker 1 fetches 100 of them, and computes the first for longer than worker 2
    // takes for the rest. It is started first, to be sure that it gets its 100.
    let start = starter(&job, 3, "async-ps --epochs=1 --n-fetch=100 --straggle=1:3600000")?;
    let mut ranks = (0..2).map(&start).collect::<Result<Vec<_>>>()?;
    job.until("worker 1 has read the model", || {
        let readers = events(job.directory(), 0, "read", |read| read["worker"].as_u64());
        Ok(readers.is_ok_and(|readers| readers.contains(&1)).then_some(()))
    })?;
    ranks.push(start(2)?);
    job.until("worker 2 has done what worker 1 has left", || {
        Ok((who_updated(job.directory()).unwrap_or_default().len() == 150).then_some(()))
    })?;
    kill(ranks[1].pid(), Signal::SIGKILL)?;
    ranks[0].wait()?.expect_success()?.expect_line(&["worker 1 is gone", "1 worker goes on"])?;
    ranks[2].wait()?.expect_success()?;
    assert_eq!(outcome(&job, "batches")?, 250.0);
    Ok(())
}

#[test]
fn when_a_worker_is_stopped_the_server_goes_on_after_the_timeout() -> Result<()> {
    let job = Job::new()?;
    // The other trains for longer than the timeout, or nobody might be left.
    let mut ranks = started(&job, 3, "async-ps --epochs=5 --step-time=10 --timeout=10")?;
    stop_after_first_step(&job, &ranks, 2, 1..2)?;
    let server = ranks[0].wait()?.expect_success()?;
    server.expect_line(&["[server] worker 2 is gone", "is stopped", "1 worker goes on"])?;
    ranks[1].wait()?.expect_success().map(drop)
}

#[test]
fn when_all_workers_are_killed_the_server_ends() -> Result<()> {
    let job = Job::new()?;
    // Below `SOON`, in case gloo misses the failure of a send.
    let mut ranks = started(&job, 3, "async-ps --epochs=1000 --timeout=3")?;
    wait_for_steps(&job, 1..3, STEPS)?;
    ranks[1..].iter().try_for_each(|worker| kill(worker.pid(), Signal::SIGKILL))?;
    let server = ranks[0].wait_until(Instant::now() + SOON)?.expect_code(1)?;
    server.expect_line(&["[rank 0] error: no worker is left after", "2 of 2 have come"])
}

#[test]
fn when_a_server_is_killed_every_worker_ends_and_names_it() -> Result<()> {
    for (killed, which) in [(0, ", rank 0"), (1, " of shard 1, rank 1")] {
        let job = Job::new()?;
        let mut ranks = started(&job, 4, "async-ps --servers=2 --epochs=1000 --timeout=5")?;
        wait_for_steps(&job, 2..4, STEPS)?;
        kill(ranks[killed].pid(), Signal::SIGKILL)?;
        let deadline = Instant::now() + TIMEOUT + SOON;
        for worker in [2, 3] {
            let ended = ranks[worker].wait_until(deadline)?.expect_code(1)?;
            let lost = format!("lost the parameter server{which}");
            ended.expect_line(&[&format!("[rank {worker}] error: "), &lost])?;
        }
        ranks[1 - killed].wait_until(deadline)?;
    }
    Ok(())
}

#[test]
fn a_worker_that_comes_late_is_served() -> Result<()> {
    let flags = "async-ps --servers=2 --step-time=10 --straggle=2:50 --epochs=2";
    let job = trained_with_late(4, flags, 3, STEPS)?;
    let updated = who_updated(job.directory())?;
    assert_eq!(updated.first(), Some(&2));
    ensure!(updated.contains(&3), "the late worker has contributed nothing");
    Ok(())
}

#[test]
fn a_worker_that_comes_when_all_is_done_is_told_so() -> Result<()> {
    let job = Job::new()?;
    let start = starter(&job, 3, "async-ps --epochs=1 --timeout=600")?;
    let mut ranks = (0..2).map(&start).collect::<Result<Vec<_>>>()?;
    ranks[1].wait()?.expect_success()?;
    job.until("the server has evaluated the model", || Ok(outcome(&job, "batches").ok()))?;
    start(2)?.wait()?.expect_success()?;
    let server = ranks[0].wait()?.expect_success()?;
    server.expect_line(&["all is done", "workers [2], which have not come"])?;
    ensure!(!who_updated(job.directory())?.contains(&2), "it has changed an evaluated model");
    Ok(())
}
