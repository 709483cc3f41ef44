//! The mean of the gradients (chapter: ddp-mnist.md)
//!
//! Do what DistributedDataParallel does, without buckets and overlap: replace each gradient by its mean over the ranks.
//! The tensor that `parameter.grad()` returns shares the gradient's memory, so changing it in place changes the
//! gradient.

use crate::prelude::*;

pub fn average_gradients(group: &ProcessGroup, parameters: &[Tensor]) -> Result<()> {
    todo!("sum up each gradient over the ranks, and divide")
}

pub fn check(
    group: &ProcessGroup,
    average_gradients: impl Fn(&ProcessGroup, &[Tensor]) -> Result<()>,
) -> Result<()> {
    let parameters = [(); 2].map(|()| one_weight(&[1.0, 1.0]).1);
    for (number, parameter) in parameters.iter().enumerate() {
        let own = (group.rank() as f32 + 1.0) * (number as f32 + 1.0);
        product(parameter, &Tensor::from_slice(&[own, 10.0 * own])).backward();
    }
    average_gradients(group, &parameters)?;
    let gradients = Tensor::cat(&parameters.map(|it| it.grad()), 0);
    let expected = Tensor::from_slice(&[1.5, 15.0, 3.0, 30.0]);
    agree(group, "the gradients", &gradients, &expected)
}
