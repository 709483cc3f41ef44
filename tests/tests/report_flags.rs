//! What the trainers write for others to look at: `--profile` for Perfetto, `--tensorboard` for TensorBoard.

use crate::prelude::*;

/// Trains on two ranks. Each must leave a trace of forward pass, backward pass and exchange, and
/// rank 0 alone the numbers for TensorBoard.
fn expect_traces_and_curves(mut program: Command) -> Result<()> {
    let program = program.args(["--profile", "traces", "--tensorboard", "curves"]);
    let job = Job::new()?;
    let ended = job.run(launch(2, program)?)?.expect_success()?;
    // Kineto, which records, logs its own start and that there is no GPU.
    for word in ["USDT", "ERROR"] {
        ensure!(!ended.stderr.contains(word), "{}", ended.stderr);
    }
    for rank in 0..2 {
        let trace = job.text(format!("traces/rank{rank}.json"))?;
        for name in ["aten::addmm", "AddmmBackward0", ":all_reduce"] {
            ensure!(trace.contains(name), "the trace of rank {rank} has no {name}");
        }
    }
    let curves = fs::read_dir(job.path("curves"))?.map(|file| Ok(file?.path()));
    let curves = curves.collect::<Result<Vec<_>>>()?;
    ensure!(curves.len() == 1, "{curves:?}");
    let numbers = fs::read(&curves[0])?;
    ensure!(String::from_utf8_lossy(&numbers).contains("loss"), "{curves:?} has no losses");
    Ok(())
}

#[test]
fn ddp_mnist_shows_its_steps_and_losses() -> Result<()> {
    expect_traces_and_curves(ddp_mnist(["--epochs", "1"])?)
}

#[test]
fn ddp_imagenet_shows_its_steps_and_losses() -> Result<()> {
    let digits = ["--dataset", "mnist", "--no-augment", "--epochs", "1", "--steps", "5"];
    let network = ["--arch", "pyramidnet8_a6", "--batch-size", "8"];
    expect_traces_and_curves(ddp_imagenet([&digits[..], &network].concat())?)
}

#[test]
fn dp_custom_criterion_shows_its_steps_and_losses() -> Result<()> {
    let sizes = ["--hidden", "32", "--layers", "1", "--attn-heads", "2", "--seq-len", "16"];
    let flags = ["--method", "ddp", "--batch-size", "16", "--steps", "5"];
    let mut program = dp_custom_criterion([&sizes[..], &flags].concat())?;
    program.args(["--corpus", &corpus()]);
    expect_traces_and_curves(program)
}
