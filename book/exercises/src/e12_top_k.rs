//! Send the largest gradients only (chapter: communication-hooks.md)
//!
//! Add `rest`, what earlier steps have not sent, to the gradient. Of the sum, send only the `k` numbers with the
//! largest absolute values, and store what remains in `rest`. Return the mean of what all ranks have sent. Both tensors
//! have one dimension. `topk` finds places, `gather` reads the values there, and `scatter_value` and `scatter_add`
//! change them.

use crate::prelude::*;

pub fn top_k(group: &ProcessGroup, gradient: &Tensor, rest: &mut Tensor, k: i64) -> Result<Tensor> {
    todo!("all-gather places and values, and keep the rest")
}

pub fn check(
    group: &ProcessGroup,
    top_k: impl Fn(&ProcessGroup, &Tensor, &mut Tensor, i64) -> Result<Tensor>,
) -> Result<()> {
    let gradient = [[4f32, 1.0, -3.0, 0.0], [1.0, 2.0, -6.0, 0.0]][group.rank()];
    let gradient = Tensor::from_slice(&gradient);
    let mut rest = gradient.zeros_like();
    for expected in [[2.0, 0.0, -3.0, 0.0], [0.0, 0.0, -6.0, 0.0]] {
        let mean = top_k(group, &gradient, &mut rest, 1)?;
        agree(group, "the mean", &mean, &Tensor::from_slice(&expected))?;
    }
    let mean = top_k(group, &gradient, &mut gradient.zeros_like(), 4)?;
    agree(group, "the mean of all", &mean, &Tensor::from_slice(&[2.5, 1.5, -4.5, 0.0]))
}
