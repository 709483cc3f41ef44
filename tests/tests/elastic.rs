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
    let flags = ["--elastic", "--epochs", "60", "--metrics", "metrics", "--save", "w.safetensors"];
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
    let all = (0..60).flat_map(|epoch| (0..21).map(move |step| (epoch, step)));
    let missing = all.filter(|step| !taken.contains(step)).count();
    // The rank that was killed may have committed a step without writing it.
    ensure!(missing <= 1 && taken.len() + missing == 60 * 21, "{missing} steps are missing");
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
    let mut launcher = job.start(launch_with(&["-n", "3", "--max-restarts", "1"], &program)?)?;
    let mut killed = Vec::new();
    for _ in 0..2 {
        let is_gone = |all: &Vec<_>| !killed.iter().any(|it| all.contains(it));
        job.until("three ranks train", || Ok(ranks(&job, 3)?.filter(is_gone)))?;
        let victim = job.rank(1, "elastic_counts")?;
        kill(victim, Signal::SIGKILL)?;
        killed.push(victim);
    }
    let ended = launcher.wait()?;
    let pid = format!("(pid {})", killed[1]);
    ended.expect_line(&["launch: rank 1 ", &pid, "was killed by SIGKILL"])?;
    ended.expect_line(&["restart 1 of 1: 2 ranks go on, and another one takes its place"])?;
    ensure!(!ended.status.success(), "{ended}");
    job.expect_nobody_left(Duration::from_secs(5))?;
    let name = "the_books_picture_is_compared_with_these_groups";
    insta::assert_snapshot!(name, groups(&job, &ended.stdout)?);
    Ok(())
}

/// The processes of three groups, in the order of their ranks. A group goes on after the last step of the one before,
/// as those that are in all three have written.
fn groups(job: &Job, printed: &str) -> Result<String> {
    let mut groups = BTreeMap::<usize, BTreeMap<usize, usize>>::new();
    for line in printed.lines() {
        let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok());
        let [process, rank, _, sample, epoch] = numbers.collect::<Vec<usize>>()[..] else {
            bail!("`{line}` should say who is which rank, from which sample on");
        };
        // SAMPLES and BATCH of elastic_counts.rs: 1,200, and 60 a step.
        groups.entry(epoch * 20 + sample / 60).or_default().insert(rank, process);
    }
    let mut begins = [0; 3];
    for process in groups.values().nth(1).context(printed.to_owned())?.values() {
        let steps = job.text(Path::new(STEPS).join(process.to_string()))?;
        let sizes: Vec<_> = steps.lines().filter_map(|step| step.split(' ').nth(1)).collect();
        let taken: Vec<_> = sizes.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
        // One may have been behind, even until all three were there again.
        let [all, left, ..] = taken[..] else { continue };
        begins = [0, begins[1].max(all), begins[2].max(all + left)];
    }
    ensure!(groups.keys().eq(&begins), "{printed} instead of {begins:?}");
    let (mut names, mut lines) = (BTreeMap::new(), String::new());
    let begins = ["the first step", "the step that failed", "the step after the last"];
    for (group, begin) in groups.values().zip(begins) {
        for process in group.values() {
            let next = char::from(b'A' + names.len() as u8);
            lines += &format!("{} ", names.entry(process).or_insert(next));
        }
        lines += &format!("from {begin}\n");
    }
    Ok(lines)
}
