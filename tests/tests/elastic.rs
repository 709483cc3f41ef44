//! Ranks that are replaced while the others train: `elastic::run`.

use crate::prelude::*;
use tests::soak::replaced::{STEPS, ranks};
use tests::soak::{LINES, Size, Trial};

#[test]
fn killed_ranks_are_replaced_while_the_others_go_on_and_every_sample_counts_once() -> Result<()> {
    let line =
        LINES.iter().find(|line| line.name == "replaced").context("there is no such line")?;
    let mut trial = Trial::new(0, Size::QUICK);
    let took = (line.trial)(&mut trial).with_context(|| trial.log.clone())?;
    // Other tests may have the processor, and a group may have to be made twice.
    ensure!(took < Duration::from_secs(20), "it took {took:?}\n\n{}", trial.log);
    Ok(())
}

#[test]
fn a_rank_too_many_ends_the_job_and_is_named() -> Result<()> {
    let job = Job::new()?;
    fs::create_dir(job.path(STEPS))?;
    let program = example("elastic_counts", ["1000000", STEPS])?;
    let mut launcher = job.start(launch_with(&["-n", "2", "--max-restarts", "1"], &program)?)?;
    let mut killed = Vec::new();
    for _ in 0..2 {
        let both = || Ok(ranks(&job, 2)?.filter(|both| !both.iter().any(|it| killed.contains(it))));
        let both = job.until("two ranks train", both)?;
        kill(both[0], Signal::SIGKILL)?;
        killed.push(both[0]);
    }
    let ended = launcher.wait()?;
    ended.expect_line(&[
        "launch: rank ",
        &format!("(pid {})", killed[1]),
        "was killed by SIGKILL",
    ])?;
    ended.expect_line(&["restart 1 of 1: 1 rank goes on, and another one takes its place"])?;
    ensure!(!ended.status.success(), "{ended}");
    job.expect_nobody_left(Duration::from_secs(5))
}
