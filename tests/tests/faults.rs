//! Ranks and launchers that are killed, stopped or interrupted mid-epoch: the others end soon, say
//! which rank is to blame, and leave neither half-written files nor processes behind.

use crate::prelude::*;

/// How long the remaining processes may take to end.
const SOON: Duration = Duration::from_secs(5);

/// More epochs than any test waits for.
fn endless<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--epochs", "1000", "--batch-size", "32"][..], &OUTPUTS, more].concat()
}

/// Starts a launcher with `ranks` ranks, and waits until all of them are mid-epoch.
fn launch_and_wait_for_steps(ranks: usize, more: &[&str]) -> Result<(Job, Process)> {
    let job = Job::new()?;
    let launcher = job.start(launch(ranks, &ddp_mnist(endless(more))?)?)?;
    wait_for_steps(&job, 0..ranks, 10)?;
    Ok((job, launcher))
}

/// Expects that neither a checkpoint, complete or partial, nor a process is left.
fn expect_nothing_left(job: &Job) -> Result<()> {
    job.expect_nobody_left(SOON)?;
    assert_eq!(job.files()?, ["metrics"], "the killed job has left files behind");
    Ok(())
}

#[test]
fn a_killed_rank_ends_the_job_and_the_launcher_names_it() -> Result<()> {
    let (job, mut launcher) = launch_and_wait_for_steps(2, &[])?;
    kill(job.rank(1, "ddp-mnist")?, Signal::SIGKILL)?;
    let ended = launcher.wait_until(Instant::now() + SOON)?;
    assert!(!ended.status.success(), "{ended}");
    ended.expect_line(&["rank 1", "SIGKILL"])?;
    expect_nothing_left(&job)
}

#[test]
fn the_survivors_of_a_killed_rank_name_it_themselves_even_if_it_is_rank_0() -> Result<()> {
    for (killed, survivors) in [(1, &[0][..]), (0, &[1, 2][..])] {
        let (job, count) = (Job::new()?, 1 + survivors.len());
        let mut ranks = start_by_hand(&job, (0..count).map(|_| ddp_mnist(endless(&[]))))?;
        wait_for_steps(&job, 0..count, 10)?;
        kill(ranks[killed].pid(), Signal::SIGKILL)?;
        let deadline = Instant::now() + SOON;
        for &rank in survivors {
            let survivor = ranks[rank].wait_until(deadline)?.expect_code(1)?;
            survivor.expect_line(&[&format!("[rank {rank}] error:"), &format!("rank {killed}")])?;
        }
        drop(ranks);
        expect_nothing_left(&job)?;
    }
    Ok(())
}

#[test]
fn an_interrupted_launcher_ends_its_ranks_and_itself_with_130() -> Result<()> {
    let (job, mut launcher) = launch_and_wait_for_steps(2, &[])?;
    kill(launcher.pid(), Signal::SIGINT)?;
    launcher.wait_until(Instant::now() + SOON)?.expect_code(130)?;
    expect_nothing_left(&job)
}

#[test]
fn a_rank_that_is_stopped_for_longer_than_the_timeout_ends_the_job() -> Result<()> {
    let (job, mut launcher) = launch_and_wait_for_steps(2, &["--timeout", "5"])?;
    kill(job.rank(1, "ddp-mnist")?, Signal::SIGSTOP)?;
    let ended = launcher.wait_until(Instant::now() + Duration::from_secs(5) + 2 * SOON)?;
    assert!(!ended.status.success(), "{ended}");
    ended.expect_line(&["[rank 0] error:", "rank 1"])?;
    expect_nothing_left(&job)
}
