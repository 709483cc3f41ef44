//! A rank that fails for a reason of its own is named with it, by the launcher and by the other ranks,
//! whichever of them ends first.

use crate::prelude::*;

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

/// Runs the example under `launch`. Its rank 1 of three fails.
fn expect_reason(failure: &str, code: i32, reason: &str) -> Result<()> {
    let ended = Job::new()?.run(launch(3, &example("failing_rank", [failure])?)?)?;
    expect_culprit(&ended.expect_code(code)?, 1, reason)
}

cases! {
    fn a_rank_that_panics_is_named_with_the_panics_message() =
        expect_reason("panic", 101, " exited with code 101: panicked: no sample 6 in the data set");
    fn a_rank_that_runs_out_of_memory_is_named() = expect_reason("memory", 1, "can't allocate memory");
    fn a_rank_whose_backward_pass_fails_is_named() =
        expect_reason("backward", 1, "backward failed: element 0 of tensors does not require grad");
    /// On a loaded machine, the launcher may have to end Python before it has shut down.
    fn a_python_rank_is_named_with_what_it_records() =
        expect_culprit(&Job::new()?.run(launch(2, &python("failing_rank", [])?)?)?.expect_code(1)?, 1,
            ": ValueError: no sample 6 in the data set");
    fn a_program_that_starts_its_ranks_names_the_one_that_fails() =
        Job::new()?.run(example("spawn_ranks", ["2"])?)?.expect_code(1)?
            .expect_messages(&["rank 2 failed (exit status: 1): there is no GPU 2"]);
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
fn torchrun_names_the_same_rank_and_reason() -> Result<()> {
    let ended = Job::new()?.run(torchrun(3, &example("failing_rank", ["error"])?)?)?;
    let ended = ended.expect_code(1)?;
    let cause = ended.stderr.split_once("Root Cause (first observed failure):");
    let (_, cause) = cause.with_context(|| format!("torchrun names no cause: {ended}"))?;
    let lines = ["rank      : 1 (local_rank: 1)", "traceback : no sample 6 in the data set"];
    expect_texts(cause, &lines)
}
