//! A parameter server (chapter: parameter-server.md)
//!
//! Rank 0 is the server, and a worker as well. Every rank pushes its gradient; the server subtracts 0.1 times the mean
//! of all gradients from its weight; every rank pulls the server's weight, whatever its own was.

use crate::prelude::*;

pub fn push_pull(group: &ProcessGroup, weight: &mut Tensor, gradient: &Tensor) -> Result<()> {
    todo!("gather the gradients on rank 0, update, and broadcast")
}

pub fn check(
    group: &ProcessGroup,
    push_pull: impl Fn(&ProcessGroup, &mut Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let mut weight = Tensor::from_slice(&[1f32, 2.0]) + 100.0 * group.rank() as f64;
    let gradient = Tensor::from_slice(&[2f32, 4.0]) * (1.0 + 2.0 * group.rank() as f64);
    for expected in [[0.6, 1.2], [0.2, 0.4]] {
        push_pull(group, &mut weight, &gradient)?;
        agree(group, "the weight", &weight, &Tensor::from_slice(&expected))?;
    }
    Ok(())
}
