//! A rank that fails for a reason of its own is named with it, by the launcher and by the other ranks,
//! whichever of them ends first.

use crate::prelude::*;

/// Runs the example under `launch`. Its rank 1 of three fails.
fn run_failing_rank(failure: &str) -> Result<Ended> {
    Job::new()?.run(launch(3, &example("failing_rank", [failure])?)?)
}

/// Expects that the launcher gives the reason to this rank, once, and nothing that the console has shown already.
fn expect_culprit(ended: &Ended, rank: usize, reason: &str) -> Result<()> {
    let said: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("launch: ")).collect();
    let first = said.first().with_context(|| format!("launch says nothing: {ended}"))?;
    let culprit = format!("launch: rank {rank} (pid ");
    ensure!(first.starts_with(&culprit) && first.contains(reason), "{first}\n{ended}");
    let times = said.iter().filter(|line| line.contains(reason)).count();
    ensure!(times == 1 && !ended.stderr.contains("last lines"), "{ended}");
    Ok(())
}

#[test]
fn an_error_in_a_ranks_own_code_is_the_reason() -> Result<()> {
    let ended = run_failing_rank("error")?.expect_code(1)?;
    expect_culprit(&ended, 1, " exited with code 1: no sample 6 in the data set")
}

#[test]
fn a_rank_that_panics_is_named_with_the_panics_message() -> Result<()> {
    let ended = run_failing_rank("panic")?.expect_code(101)?;
    expect_culprit(&ended, 1, " exited with code 101: panicked: no sample 6 in the data set")
}

#[test]
fn a_rank_that_runs_out_of_memory_is_named() -> Result<()> {
    expect_culprit(&run_failing_rank("memory")?.expect_code(1)?, 1, "can't allocate memory")
}

#[test]
fn a_rank_whose_backward_pass_fails_is_named() -> Result<()> {
    let ended = run_failing_rank("backward")?.expect_code(1)?;
    expect_culprit(&ended, 1, "backward failed: element 0 of tensors does not require grad")
}

#[test]
fn a_full_disk_at_rank_0s_checkpoint_is_the_reason() -> Result<()> {
    let probe = Job::new()?.run(with_small_disk(&Command::new("true")));
    if !probe.is_ok_and(|made| made.status.success()) {
        eprintln!("skipped: no small disk can be made here");
        return Ok(());
    }
    let program = ddp_mnist(["--epochs", "1", "--save", "disk/model.safetensors"])?;
    let ended = Job::new()?.run(with_small_disk(&launch(3, &program)?))?.expect_code(1)?;
    expect_culprit(&ended, 0, "No space left on device")
}

#[test]
fn a_python_rank_is_named_with_what_it_records() -> Result<()> {
    let ended = Job::new()?.run(launch(2, &python("failing_rank", [])?)?)?.expect_code(1)?;
    // On a loaded machine, the launcher may have to end Python before it has shut down.
    expect_culprit(&ended, 1, ": ValueError: no sample 6 in the data set")
}

#[test]
fn torchrun_names_the_same_rank_and_reason() -> Result<()> {
    let ended = Job::new()?.run(torchrun(3, &example("failing_rank", ["error"])?)?)?;
    let ended = ended.expect_code(1)?;
    let cause = ended.stderr.split_once("Root Cause (first observed failure):");
    let (_, cause) = cause.with_context(|| format!("torchrun names no cause: {ended}"))?;
    let lines = ["rank      : 1 (local_rank: 1)", "traceback : no sample 6 in the data set"];
    expect_texts(cause, &lines)
}
