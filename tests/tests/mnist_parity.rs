//! ddp-mnist equals its Python original to the last bit: every loss of every rank, and the final weights.

use crate::prelude::*;

fn expect_parity(world_size: usize, flags: &str) -> Result<()> {
    Training::launched_as_python(world_size, flags).map(drop)
}

cases! {
    fn one_rank_equals_python() = expect_parity(1, "--epochs 2");
    fn one_rank_with_momentum_and_another_seed_equals_python() =
        expect_parity(1, "--epochs 1 --seed 7 --batch-size 100 --lr 0.05 --momentum 0.9 --no-shuffle");
    fn two_ranks_equal_python() = expect_parity(2, "--epochs 2");
    fn two_ranks_with_nesterov_and_weight_decay_equal_python() =
        expect_parity(2, "--epochs 2 --seed 3 --sampler-seed 7 --batch-size 100 --lr 0.1 --momentum 0.9 \
                          --nesterov --weight-decay 0.0001");
    fn two_ranks_without_shuffling_equal_python() =
        expect_parity(2, "--epochs 1 --no-shuffle --batch-size 32 --lr 0.02 --seed 123456789");
    /// The model's gradients are 0.45 MiB, so this small cap spreads them over several buckets.
    fn two_ranks_with_several_buckets_that_hold_the_gradients_equal_python() =
        expect_parity(2, "--epochs 1 --momentum 0.5 --bucket-cap-mb 0.05 --gradient-as-bucket-view");
    fn two_ranks_that_look_for_unused_parameters_equal_python() =
        expect_parity(2, "--epochs 1 --seed 11 --find-unused-parameters --no-broadcast-buffers");
    fn two_ranks_with_a_static_graph_equal_python() =
        expect_parity(2, "--epochs 1 --seed 5 --lr 0.05 --static-graph");
    fn three_ranks_that_share_the_digits_unevenly_equal_python() =
        expect_parity(3, "--epochs 1 --batch-size 100");
    fn four_ranks_equal_python() = expect_parity(4, "--epochs 2 --seed 2 --momentum 0.9");
}
