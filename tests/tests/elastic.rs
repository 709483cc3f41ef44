//! Ranks that are replaced while the others train: `elastic::run`.

use crate::prelude::*;
use tests::soak::replaced::{STEPS, ranks};

#[test]
fn killed_ranks_are_replaced_while_the_others_go_on_and_every_sample_counts_once() -> Result<()> {
    // Other tests may have the processor, and a group may have to be made twice.
    crate::hosts::try_once("replaced", |_| Duration::from_secs(20))
}

#[test]
fn a_training_that_loses_a_rank_takes_every_step() -> Result<()> {
    let job = Job::new()?;
    let flags = ["--elastic", "--epochs", "30", "--metrics", "metrics", "--save", "w.safetensors"];
    let program = ddp_mnist(flags)?;
    let mut launcher = job.start(launch_with(&["-n", "3", "--max-restarts", "9"], &program)?)?;
    wait_for_steps(&job, 0..3, 20)?;
    // The one that writes the metrics, serves the store and saves.
    kill(job.rank(0, "ddp-mnist")?, Signal::SIGKILL)?;
    let ended = launcher.wait()?.expect_success()?;
    ended.expect_line(&["restart 1 of 9: 2 ranks go on, and another one takes its place"])?;

    let steps = events(job.directory(), 0, "step", |step| {
        let number = |name: &str| step[name].as_u64();
        Some((number("epoch")?, number("step")?, number("world_size")?))
    })?;
    let mut taken: Vec<_> = steps.iter().map(|&(epoch, step, _)| (epoch, step)).collect();
    ensure!(taken.is_sorted(), "{taken:?}");
    taken.dedup();
    // 8,000 samples, 384 a step.
    let all = (0..30).flat_map(|epoch| (0..21).map(move |step| (epoch, step)));
    let missing = all.filter(|step| !taken.contains(step)).count();
    // The rank that was killed may have committed a step without writing it.
    ensure!(missing <= 1 && taken.len() + missing == 30 * 21, "{missing} steps are missing");
    let mut sizes: Vec<_> = steps.iter().map(|&(_, _, world_size)| world_size).collect();
    sizes.dedup();
    // It may end before the new rank has come.
    ensure!(matches!(sizes[..], [3, 2] | [3, 2, 3]), "{sizes:?}");
    ensure!(job.tensors("w.safetensors")?.len() == 5);
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
    let pid = format!("(pid {})", killed[1]);
    ended.expect_line(&["launch: rank ", &pid, "was killed by SIGKILL"])?;
    ended.expect_line(&["restart 1 of 1: 1 rank goes on, and another one takes its place"])?;
    ensure!(!ended.status.success(), "{ended}");
    job.expect_nobody_left(Duration::from_secs(5))
}
