//! ddp-imagenet equals its Python original to the last bit: every loss of every rank, and the final
//! weights.

use anyhow::Result;
use tests::imagenet::{OUTPUTS, training};
use tests::programs::{ddp_imagenet, launch, python_imagenet, start_by_hand};
use tests::{Job, Training, expect_all_succeed};

/// Real pixels, the embedded digits, and as many steps as it takes for a difference to show.
const DIGITS: [&str; 8] =
    ["--dataset", "mnist", "--no-augment", "--epochs", "1", "--steps", "10", "--batch-size=32"];

/// Trains twice with these flags, once here and once there, and compares.
fn expect_parity(world_size: usize, flags: &[&str]) -> Result<()> {
    let flags = || DIGITS.into_iter().chain(flags.iter().copied());

    let job = Job::new()?;
    let program = ddp_imagenet(flags().chain(OUTPUTS))?;
    job.run(launch(world_size, &program)?)?.expect_success()?;
    let rust = training(&job, world_size)?;
    drop(job);

    let job = Job::new()?;
    let outputs = tests::training::OUTPUTS;
    let program = || python_imagenet(flags().chain(outputs));
    let programs = (0..world_size).map(|_| program()).collect::<Result<_>>()?;
    expect_all_succeed(start_by_hand(&job, programs)?)?;
    rust.expect_equal(&Training::of(&job, world_size)?)
}

#[test]
fn one_rank_with_a_pyramidnet_equals_python() -> Result<()> {
    expect_parity(1, &["--arch", "pyramidnet8_a6"])
}

#[test]
fn two_ranks_with_a_pyramidnet_equal_python() -> Result<()> {
    expect_parity(2, &["--arch", "pyramidnet8_a6", "--seed", "3", "--lr", "0.05", "--wd", "0.01"])
}

#[test]
fn one_rank_with_a_resnet_equals_python() -> Result<()> {
    expect_parity(1, &["--arch", "resnet18", "--lr", "0.01"])
}

#[test]
fn two_ranks_with_a_resnet_equal_python() -> Result<()> {
    expect_parity(2, &["--arch", "resnet18", "--lr", "0.01", "--momentum", "0.5", "--seed", "7"])
}

#[test]
fn steps_over_several_batches_equal_python() -> Result<()> {
    // 10 batches in groups of 4, 4 and 2.
    expect_parity(2, &["--arch", "pyramidnet8_a6", "--accumulate", "4"])
}

#[test]
fn images_with_their_channels_last_equal_python() -> Result<()> {
    expect_parity(2, &["--arch", "pyramidnet8_a6", "--channels-last"])
}

#[test]
fn schedules_with_a_warm_up_equal_python() -> Result<()> {
    let cosine = ["--schedule", "cosine", "--warmup-epochs", "2", "--epochs", "4", "--steps", "3"];
    expect_parity(1, &[&["--arch", "pyramidnet8_a6"], &cosine[..]].concat())
}

#[test]
fn mixed_precision_in_bf16_equals_python() -> Result<()> {
    for world_size in [1, 2] {
        expect_parity(world_size, &["--arch", "pyramidnet8_a6", "--amp", "bf16"])?;
    }
    Ok(())
}

#[test]
fn mixed_precision_in_fp16_with_a_scaled_loss_equals_python() -> Result<()> {
    expect_parity(2, &["--arch", "pyramidnet8_a6", "--amp", "fp16", "--accumulate", "2"])
}
