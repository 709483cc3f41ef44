//! Communication hooks equal PyTorch's to the last bit: every loss of every rank, and the final weights.

use crate::prelude::*;

/// Trains on two ranks for one epoch, which is 40 steps.
pub(crate) const FLAGS: &str = "--epochs 1 --lr 0.05 --momentum 0.9";

/// Trains with a hook in Rust and in Python, and compares the results.
fn expect_parity(hook: &str) -> Result<Arc<Training>> {
    Training::launched_as_python(2, &format!("{FLAGS} --comm-hook {hook}"))
}

/// The same, and that the results differ from those without a hook, since the hook might have done nothing.
fn expect_parity_and_a_difference(hook: &str) -> Result<()> {
    let same = expect_parity(hook)?.expect_equal(&*Training::launched(2, FLAGS)?);
    ensure!(same.is_err(), "the hook makes no difference");
    Ok(())
}

cases! {
    fn all_reduce_equals_python_and_no_hook_at_all() =
        expect_parity("allreduce")?.expect_equal(&*Training::launched(2, FLAGS)?);
    fn fp16_equals_python() = expect_parity_and_a_difference("fp16");
    fn bf16_in_several_buckets_equals_python() = expect_parity_and_a_difference("bf16 --bucket-cap-mb 0.05");
    fn power_sgd_of_rank_1_equals_python() = expect_parity_and_a_difference("power-sgd --start-power-sgd-iter 2");
    /// In one bucket: with several, PyTorch's hook occupies all of gloo's threads and waits forever.
    fn power_sgd_of_rank_2_equals_python() =
        expect_parity_and_a_difference("power-sgd --power-sgd-rank 2 --start-power-sgd-iter 10");
    /// From rank 3 on, matrices are orthogonalized by QR decomposition.
    fn power_sgd_of_rank_4_equals_python() =
        expect_parity_and_a_difference("power-sgd --power-sgd-rank 4 --start-power-sgd-iter 5");
}
