//! All ranks start with the same weights (chapter: ddp-mnist.md)
//!
//! Copy rank 0's variables to every rank: the parameters and the buffers. All ranks must broadcast them in the same
//! order, but `vs.variables()` is a `HashMap`, whose order differs from process to process. A collective writes into
//! the tensor that it is given; `detach` returns one that shares the parameter's memory and may be written to.

use crate::prelude::*;

pub fn same_start(group: &ProcessGroup, vs: &VarStore) -> Result<()> {
    todo!("broadcast the variables of rank 0, in the order of their names")
}

pub fn check(
    group: &ProcessGroup,
    same_start: impl Fn(&ProcessGroup, &VarStore) -> Result<()>,
) -> Result<()> {
    let vs = VarStore::new(Device::Cpu);
    let values = |number: usize| Tensor::from((10 * group.rank() + number) as f32);
    let parameters = ["a", "b", "c", "d"].into_iter().enumerate();
    let mut all: Vec<_> =
        parameters.map(|(number, name)| vs.root().var_copy(name, &values(number))).collect();
    all.push(vs.root().zeros_no_train("running_mean", &[]));
    no_grad(|| all[4].copy_(&values(4)));
    same_start(group, &vs)?;
    let expected = Tensor::from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0]);
    agree(group, "the variables a, b, c, d and running_mean", &Tensor::stack(&all, 0), &expected)
}
