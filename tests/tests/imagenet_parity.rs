//! ddp-imagenet equals its Python original to the last bit: every loss of every rank, and the final weights.

use crate::prelude::*;
use tests::imagenet::{OUTPUTS, training};

/// Real pixels, those of the embedded digits, and enough steps for a difference to show.
const DIGITS: &str = "--dataset mnist --no-augment --epochs 1 --steps 10 --batch-size=32";

fn expect_parity(world_size: usize, flags: &str) -> Result<()> {
    let flags = || DIGITS.split(' ').chain(flags.split(' '));
    let job = Job::done(launch(world_size, &ddp_imagenet(flags().chain(OUTPUTS))?)?)?;
    let rust = training(&job, world_size)?;
    let outputs = tests::training::OUTPUTS;
    let in_python = (0..world_size).map(|_| python("imagenet", flags().chain(outputs)));
    rust.expect_equal(&Training::by_hand(in_python)?)
}

cases! {
    fn one_rank_with_a_pyramidnet_equals_python() = expect_parity(1, "--arch pyramidnet8_a6");
    fn two_ranks_with_a_pyramidnet_equal_python() =
        expect_parity(2, "--arch pyramidnet8_a6 --seed 3 --lr 0.05 --wd 0.01");
    fn one_rank_with_a_resnet_equals_python() = expect_parity(1, "--arch resnet18 --lr 0.01");
    fn two_ranks_with_a_resnet_equal_python() =
        expect_parity(2, "--arch resnet18 --lr 0.01 --momentum 0.5 --seed 7");
    fn two_ranks_that_look_for_unused_parameters_equal_python() =
        expect_parity(2, "--arch pyramidnet8_a6 --find-unused-parameters --steps 5");
    fn two_ranks_that_share_out_the_optimizers_state_equal_python() =
        expect_parity(2, "--arch pyramidnet8_a6 --zero --steps 5");
    fn a_schedule_with_a_warm_up_equals_python() =
        expect_parity(1, "--arch pyramidnet8_a6 --schedule cosine --warmup-epochs 2 --epochs 4 --steps 3");
    fn bf16_with_the_channels_last_equals_python() =
        expect_parity(2, "--arch pyramidnet8_a6 --amp bf16 --channels-last --steps 5");
    /// 5 batches, in groups of 2, 2 and 1. They are small, since convolutions in fp16 take a hundred
    /// times as long on some processors.
    fn fp16_with_a_scaled_loss_and_steps_over_several_batches_equals_python() =
        expect_parity(2, "--arch pyramidnet8_a6 --amp fp16 --accumulate 2 --steps 5 --batch-size=2");
}
