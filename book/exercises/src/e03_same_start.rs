//! All ranks start with the same weights (chapter: ddp-mnist.md)
//!
//! Give every rank the variables of rank 0: the parameters and the buffers. All ranks must broadcast them in the same order,
//! and `vs.variables()` is a `HashMap`, whose order is another one in each process. A collective writes into the tensor that
//! it gets; `detach` returns one with the same memory that needs no gradient.

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
