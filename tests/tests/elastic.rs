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

/// A training that computes what twelve ranks would, on this number of them.
fn with_virtual_ranks(job: &Job, ranks: usize, flags: [&str; 6], save: &str) -> Result<Process> {
    let program =
        ddp_mnist(["--virtual-ranks", "12", "--save", save].iter().chain(&flags).copied())?;
    job.start(launch_with(&["-n", &ranks.to_string(), "--max-restarts", "9"], &program)?)
}

#[test]
fn twelve_virtual_ranks_have_the_same_weights_on_any_number_of_ranks() -> Result<()> {
    let job = Job::new()?;
    for ranks in [1, 2, 3, 4, 5, 6, 12] {
        let (save, metrics) = (format!("{ranks}.safetensors"), format!("metrics-{ranks}"));
        let flags = ["--batch-size", "64", "--epochs", "2", "--metrics", &metrics];
        with_virtual_ranks(&job, ranks, flags, &save)?.wait()?.expect_success()?;
        let weights = |file: &str| fs::read(job.path(file));
        ensure!(weights(&save)? == weights("1.safetensors")?, "{ranks} ranks have other weights");
    }
    Ok(())
}

#[test]
fn virtual_ranks_have_the_same_weights_although_ranks_are_lost_and_replaced() -> Result<()> {
    let job = Job::new()?;
    let flags = ["--batch-size", "16", "--epochs", "8", "--metrics", "metrics"];
    let mut launcher = with_virtual_ranks(&job, 4, flags, "replaced.safetensors")?;
    for (killed, steps) in [(2, 20), (0, 90), (3, 160)] {
        wait_for_steps(&job, 0..1, steps)?;
        kill(job.rank(killed, "ddp-mnist")?, Signal::SIGKILL)?;
    }
    launcher.wait()?.expect_success()?.expect_line(&["restart 3 of 9: 3 ranks go on"])?;
    let mut sizes = events(job.directory(), 0, "step", |step| step["world_size"].as_u64())?;
    sizes.dedup();
    ensure!(sizes.starts_with(&[4, 3, 4]), "{sizes:?}");
    let flags = ["--batch-size", "16", "--epochs", "8", "--metrics", "undisturbed"];
    with_virtual_ranks(&job, 2, flags, "undisturbed.safetensors")?.wait()?.expect_success()?;
    let read = |name: &str| fs::read(job.path(format!("{name}.safetensors")));
    ensure!(read("replaced")? == read("undisturbed")?, "the weights differ");
    Ok(())
}
