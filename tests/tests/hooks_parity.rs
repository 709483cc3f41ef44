//! Communication hooks equal PyTorch's to the last bit: every loss of every rank, and the final
//! weights.

use std::sync::Arc;

use anyhow::{Result, ensure};
use tests::programs::{ddp_mnist, launch};
use tests::training::OUTPUTS;
use tests::{Shared, Training, python};

/// Trains on two ranks for one epoch, which is 40 steps.
const FLAGS: [&str; 6] = ["--epochs", "1", "--lr", "0.05", "--momentum", "0.9"];

fn rust(flags: &[&str]) -> Result<Training> {
    let flags = FLAGS.iter().chain(flags).copied().chain(OUTPUTS);
    Training::run(launch(2, &ddp_mnist(flags)?)?, 2)
}

fn without_a_hook() -> Result<Arc<Training>> {
    static TRAINING: Shared<Training> = Shared::new();
    TRAINING.get((), || rust(&[]))
}

/// Trains with these flags in Rust and in Python, and compares the results.
fn expect_parity(flags: &[&str]) -> Result<Training> {
    let ours = rust(flags)?;
    let program = || python("ddp_mnist", FLAGS.iter().chain(flags).copied().chain(OUTPUTS));
    ours.expect_equal(&Training::by_hand([program(), program()])?)?;
    Ok(ours)
}

#[test]
fn all_reduce_equals_python_and_no_hook_at_all() -> Result<()> {
    expect_parity(&["--comm-hook", "allreduce"])?.expect_equal(&*without_a_hook()?)
}

#[test]
fn fp16_equals_python() -> Result<()> {
    expect_another_training(&expect_parity(&["--comm-hook", "fp16"])?)
}

#[test]
fn bf16_in_several_buckets_equals_python() -> Result<()> {
    expect_another_training(&expect_parity(&["--comm-hook", "bf16", "--bucket-cap-mb", "0.05"])?)
}

#[test]
fn power_sgd_of_rank_1_equals_python() -> Result<()> {
    let hook = ["--comm-hook", "power-sgd", "--start-power-sgd-iter", "2"];
    expect_another_training(&expect_parity(&hook)?)
}

#[test]
fn power_sgd_of_rank_2_equals_python() -> Result<()> {
    // In one bucket: with several, PyTorch's hook occupies all of gloo's threads and waits forever.
    let hook = ["--comm-hook", "power-sgd", "--power-sgd-rank", "2"];
    let start = ["--start-power-sgd-iter", "10"];
    expect_another_training(&expect_parity(&[&hook[..], &start].concat())?)
}

#[test]
fn power_sgd_of_rank_4_equals_python() -> Result<()> {
    // From rank 3 on, matrices are orthogonalized by QR decomposition.
    let hook = ["--comm-hook", "power-sgd", "--power-sgd-rank", "4"];
    expect_another_training(&expect_parity(
        &[&hook[..], &["--start-power-sgd-iter", "5"]].concat(),
    )?)
}

/// Expects results that differ from those without a hook, since the hook might have done nothing.
fn expect_another_training(hooked: &Training) -> Result<()> {
    ensure!(hooked.expect_equal(&*without_a_hook()?).is_err(), "the hook makes no difference");
    Ok(())
}
