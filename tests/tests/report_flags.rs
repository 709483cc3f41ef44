//! What the trainers write for others to look at: `--profile` for Perfetto, `--tensorboard` for TensorBoard.

use crate::prelude::*;

/// Trains on two ranks. Each must leave a trace of forward pass, backward pass and exchange, and
/// rank 0 alone the numbers for TensorBoard.
fn expect_traces_and_curves(name: &str, flags: &str) -> Result<()> {
    let outputs = ["--profile", "traces", "--tensorboard", "curves"];
    let program = program(name, flags.split(' ').chain(outputs))?;
    let job = Job::new()?;
    let ended = job.run(launch(2, &program)?)?.expect_success()?;
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

/// On digits, with a small network.
const IMAGENET: &str = "--dataset mnist --no-augment -a pyramidnet8_a6 -b 8 --epochs 1 --steps 5";

const BERT: &str =
    "--method ddp --hidden 32 --layers 1 --attn-heads 2 --seq-len 16 --batch-size 16 --steps 5";

cases! {
    fn ddp_mnist_shows_its_steps_and_losses() = expect_traces_and_curves("ddp-mnist", "--epochs 1");
    fn ddp_imagenet_shows_its_steps_and_losses() = expect_traces_and_curves("ddp-imagenet", IMAGENET);
    fn dp_custom_criterion_shows_its_steps_and_losses() =
        expect_traces_and_curves("dp-custom-criterion", &format!("{BERT} --corpus {}", corpus()));
}
