//! PowerSGD of several matrices at once. What it computes of each is compared with Python in `ddp_hooks`.

use crate::prelude::*;
use tch_parallel::distributed::hooks::{PowerSgd, PowerSgdOptions};

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
    let apart = PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() };
    let together = PowerSgdOptions { batch_tensors_with_same_shape: true, ..apart };
    let (together, apart) = (three_matrices(group, together), three_matrices(group, apart));
    for (together, apart) in together.iter().zip(&apart) {
        let largest = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
        // The error of values around 1 after a few dozen operations in f32.
        assert!(largest(apart) > 0.1 && largest(&(together - apart)) < 1e-5);
    }
}
