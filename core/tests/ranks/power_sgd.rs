//! PowerSGD: matrices of the same shape, 16 bits, and options that are refused. `ddp_hooks` compares it with Python.

use crate::prelude::*;
use tch_parallel::distributed::hooks::{PowerSgd, PowerSgdOptions};

/// The error of values around 1 after a few dozen operations in f32.
const ROUNDING: f64 = 1e-5;

/// PowerSGD from the third step on, which is the earliest possible.
fn early() -> PowerSgdOptions {
    PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() }
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

/// The last gradients of three matrices, two of them of the same shape, after four steps.
fn three_matrices(group: &ProcessGroup, hook: impl CommHook + 'static) -> Vec<Tensor> {
    let vs = VarStore::new(Device::Cpu);
    let matrices = [("a", [24, 16]), ("b", [20, 10]), ("c", [24, 16])];
    let matrices = matrices.map(|(name, shape)| vs.root().zeros(name, &shape));
    let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
    let model = DistributedDataParallel::with_options(matrices, &vs, group, options).unwrap();
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    for step in 0..4 {
        let sum = |(index, matrix): (usize, &Tensor)| {
            let numbers = Tensor::arange(matrix.numel() as i64, FLOAT_CPU);
            let speed = 0.1 + (index + step + 3 * group.rank()) as f64 * 0.2;
            ((numbers * speed).sin().view_as(matrix) * matrix).sum(Kind::Float)
        };
        let loss = model.forward(|all| all.iter().enumerate().map(sum).sum::<Tensor>()).unwrap();
        optimizer.zero_grad().unwrap();
        model.backward(&loss).unwrap();
    }
    vs.trainable_variables().iter().map(Tensor::grad).collect()
}

#[run_by(on_ranks(2))]
fn gradients_of_the_same_shape_may_be_computed_with_together_and_all_in_16_bits(
    group: &ProcessGroup,
) {
    let hook = |options| PowerSgd::new(options).unwrap();
    let together = PowerSgdOptions { batch_tensors_with_same_shape: true, ..early() };
    let together = three_matrices(group, hook(together));
    let half = three_matrices(group, hooks::fp16_compress_wrapper(hook(early())));
    let apart = three_matrices(group, hook(early()));
    for ((together, half), apart) in together.iter().zip(&half).zip(&apart) {
        assert!(apart.abs().max().double_value(&[]) > 0.1);
        assert!(distance(together, apart) < ROUNDING);
        // Values around 1 with 11 bits are off by a few thousandths, but not by nothing.
        let rounding = distance(half, apart);
        assert!(rounding < 5e-3 && rounding > ROUNDING, "{rounding}");
    }
}

#[test]
fn options_that_cannot_work_are_refused() {
    let refused = |options, expected| expect_error_start(PowerSgd::new(options), expected);
    let default = PowerSgdOptions::default();
    let nothing = PowerSgdOptions { matrix_approximation_rank: 0, ..default };
    refused(nothing, "matrix_approximation_rank is 0");
    let early = PowerSgdOptions { start_power_sgd_iter: 1, warm_start: false, ..default };
    refused(early, "start_power_sgd_iter is 1");
    let unbiased = PowerSgdOptions { use_error_feedback: false, ..early };
    assert!(PowerSgd::new(default).is_ok() && PowerSgd::new(unbiased).is_ok());
}
