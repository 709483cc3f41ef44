//! A small GPT (`core/examples/mingpt.rs`) equals its Python original to the last bit, and a resumed
//! training one that was never interrupted.

use crate::prelude::*;

const WEIGHTS: &str = "model.safetensors";

fn text() -> String {
    workspace().join("LICENSE-MIT").display().to_string()
}

cases! {
    /// The model's dropout, its parameter groups and the norm of its gradients all have their part in a
    /// loss, and 90 steps enlarge any difference in its bits.
    fn two_ranks_equal_python() = expect_pythons_bits(&[]);
    fn two_ranks_that_shard_the_model_equal_python() =
        expect_pythons_bits(&["--fsdp", "--checkpoint-activations"]);
    /// With more than two ranks, the order of sums depends on a gradient's position in its bucket.
    fn four_ranks_go_on_as_if_they_had_not_been_interrupted() = expect_resumed(&[]);
    fn four_ranks_with_shards_go_on_as_if_they_had_not_been_interrupted() = expect_resumed(&["--fsdp"]);
}

fn expect_pythons_bits(flags: &[&str]) -> Result<()> {
    let text = text();
    let flags = [&["--epochs", "3", "--lr", "0.003", "--text", &text], flags].concat();
    let flags = || flags.iter().copied().chain(OUTPUTS);

    let ours = Job::done(launch(2, &example("mingpt", flags())?)?)?;
    let theirs = Job::new()?;
    expect_all_succeed(start_by_hand(&theirs, (0..2).map(|_| python("mingpt", flags())))?)?;

    for rank in 0..2 {
        let (ours, theirs) = (losses(ours.directory(), rank)?, losses(theirs.directory(), rank)?);
        ensure!(ours.len() == theirs.len() && ours.len() > 80, "{} steps", ours.len());
        let differs = ours.iter().zip(&theirs).position(|(a, b)| a.to_bits() != b.to_bits());
        ensure!(differs.is_none(), "rank {rank}: the losses differ from step {differs:?} on");
        ensure!(ours.last() < ours.first().map(|first| first - 1.0).as_ref(), "{ours:?}");
    }
    ensure!(ours.tensors(WEIGHTS)? == theirs.tensors(WEIGHTS)?, "the final weights differ");
    Ok(())
}

fn expect_resumed(fsdp: &[&str]) -> Result<()> {
    let run = |job: &Job, flags: &[&str]| {
        let mut program = example("mingpt", [flags, fsdp, &OUTPUTS].concat())?;
        job.run(launch(4, program.args(["--text", &text()]))?)?.expect_success()
    };
    let whole = Job::new()?;
    run(&whole, &["--epochs", "2"])?;
    let parts = Job::new()?;
    run(&parts, &["--epochs", "1", "--snapshot", "snapshot.safetensors"])?;
    run(&parts, &["--epochs", "2", "--resume", "snapshot.safetensors"])?;

    for rank in 0..4 {
        let second_epoch = |job: &Job| -> Result<Vec<_>> {
            let loss = |event: &Value| Some((event["epoch"].as_i64()?, event["loss"].as_f64()?));
            let steps = events(job.directory(), rank, "step", loss)?;
            Ok(steps.into_iter().filter(|(epoch, _)| *epoch == 1).collect())
        };
        let (whole, parts) = (second_epoch(&whole)?, second_epoch(&parts)?);
        ensure!(whole.len() > 10 && whole == parts, "rank {rank}: {whole:?} against {parts:?}");
    }
    ensure!(whole.tensors(WEIGHTS)? == parts.tensors(WEIGHTS)?, "the final weights differ");
    Ok(())
}
