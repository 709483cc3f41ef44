//! PowerSGD: what it keeps of a gradient, what it loses, and how it makes up for the loss.

use crate::prelude::*;
use crate::weights::{backward, gradients, model, two_buckets};
use tch_parallel::distributed::hooks::{CompressionStats, PowerSgd, PowerSgdOptions};

/// The error of values around 1 after a few dozen operations in f32.
const ROUNDING: f64 = 1e-5;

/// PowerSGD from the third step on, which is the earliest possible.
fn early() -> PowerSgdOptions {
    PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() }
}

/// A gradient for the matrix, of exactly rank `rank_of_matrix`, and one for the vector.
fn own(rank_of_process: usize, rank_of_matrix: i64) -> [Tensor; 2] {
    let wave = |rows: i64, columns: i64, speed: f64| {
        let steps = Tensor::arange(rows * columns, FLOAT_CPU);
        (steps * speed + 1.0).sin().view([rows, columns])
    };
    // The columns are the same on all ranks, so the mean has the same rank.
    let columns = wave(24, rank_of_matrix, 0.7);
    let rows = wave(rank_of_matrix, 16, 0.3 + rank_of_process as f64);
    [columns.matmul(&rows), wave(1, 16, 0.9 + rank_of_process as f64).view([16])]
}

fn mean(rank_of_matrix: i64) -> [Tensor; 2] {
    let [[matrix, vector], [matrix_1, vector_1]] = [own(0, rank_of_matrix), own(1, rank_of_matrix)];
    [matrix / 2.0 + matrix_1 / 2.0, vector / 2.0 + vector_1 / 2.0]
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

/// The exchanged gradients of each step when a rank's own are the same in every step.
fn steps(
    group: &ProcessGroup,
    count: usize,
    rank_of_matrix: i64,
    options: PowerSgdOptions,
    ddp: DdpOptions,
) -> (Vec<[Tensor; 2]>, CompressionStats) {
    let hook = PowerSgd::new(options).unwrap();
    let (vs, model) = model(group, DdpOptions { comm_hook: Some(Box::new(hook.clone())), ..ddp });
    let exchanged = |_| {
        backward(&vs, &model, &own(group.rank(), rank_of_matrix)).unwrap();
        gradients(&vs)
    };
    ((0..count).map(exchanged).collect(), hook.compression_stats())
}

#[run_by(on_ranks(2))]
fn a_gradient_of_the_rank_of_the_approximation_survives_it(group: &ProcessGroup) {
    for rank in [1, 2, 3] {
        for ddp in [DdpOptions::default(), two_buckets()] {
            let options = PowerSgdOptions { matrix_approximation_rank: rank, ..early() };
            let (steps, stats) = steps(group, 4, rank as i64, options, ddp);
            let [matrix, vector] = mean(rank as i64);
            for step in &steps {
                assert!(distance(&step[0], &matrix) < ROUNDING, "rank {rank}");
                // Not compressed; what error feedback adds is zero up to rounding.
                assert!(distance(&step[1], &vector) < ROUNDING, "rank {rank}");
            }
            // Two of the four steps are compressed: 24 x 16 numbers become 24 + 16 per rank of
            // the approximation, and the vector's 16 stay 16.
            let (before, after) = (2 * (24 * 16 + 16), 2 * ((24 + 16) * rank as u64 + 16));
            assert_eq!(stats.numel_before_compression, before);
            assert_eq!(stats.numel_after_compression, after);
            assert_eq!(stats.rate, before as f64 / after as f64);
        }
    }
}

#[run_by(on_ranks(2))]
fn every_rank_has_the_same_approximation(group: &ProcessGroup) {
    for warm_start in [true, false] {
        let options = PowerSgdOptions { warm_start, ..early() };
        let (steps, _) = steps(group, 5, 3, options, two_buckets());
        for step in steps {
            let ranks = group.all_gather(&step[0]).unwrap();
            assert_eq!(ranks[0], ranks[1]);
        }
    }
}

/// How far the mean of 40 compressed steps is from the true mean.
fn drift(group: &ProcessGroup, use_error_feedback: bool) -> f64 {
    let options = PowerSgdOptions { use_error_feedback, ..early() };
    let (steps, _) = steps(group, 42, 2, options, DdpOptions::default());
    let sum =
        steps[2..].iter().fold(Tensor::zeros([24, 16], FLOAT_CPU), |sum, step| sum + &step[0]);
    distance(&(sum / 40.0), &mean(2)[0])
}

#[run_by(on_ranks(2))]
fn error_feedback_makes_up_for_what_is_lost(group: &ProcessGroup) {
    let (with, without) = (drift(group, true), drift(group, false));
    // Without feedback, what is left out is lost; with it, it is only a step or two late, out of 40.
    assert!(without > 0.1 && with < without / 5.0, "{with} with, {without} without");
}

/// The last gradients of three matrices, two of them of the same shape, after four steps.
fn three_matrices(group: &ProcessGroup, options: PowerSgdOptions) -> Vec<Tensor> {
    let vs = VarStore::new(Device::Cpu);
    let matrices = [("a", [24, 16]), ("b", [20, 10]), ("c", [24, 16])];
    let matrices = matrices.map(|(name, shape)| vs.root().zeros(name, &shape));
    let hook = PowerSgd::new(options).unwrap();
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
fn gradients_of_the_same_shape_may_be_computed_with_together(group: &ProcessGroup) {
    let together = PowerSgdOptions { batch_tensors_with_same_shape: true, ..early() };
    let (together, apart) = (three_matrices(group, together), three_matrices(group, early()));
    for (together, apart) in together.iter().zip(&apart) {
        assert!(apart.abs().max().double_value(&[]) > 0.1);
        assert!(distance(together, apart) < ROUNDING);
    }
}

#[run_by(on_ranks(2))]
fn it_also_works_in_16_bits(group: &ProcessGroup) {
    let hook = hooks::fp16_compress_wrapper(PowerSgd::new(early()).unwrap());
    let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
    let (vs, model) = model(group, options);
    (0..4).for_each(|_| backward(&vs, &model, &own(group.rank(), 1)).unwrap());
    let found = distance(&gradients(&vs)[0], &mean(1)[0]);
    // Values around 1 with 11 bits are off by a few thousandths, but not by nothing.
    assert!(found < 5e-3 && found > ROUNDING, "{found}");
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
