//! The exchange itself, over send and receive.

use super::schedule::{self, Iteration, Schedule};
use crate::link::Link;
use tch::Tensor;
use tch_parallel::Result;

/// The sum over all ranks of a flat tensor, in place on every one, the same to the bit.
///
/// Every rank sends 2(N − 1) chunks of 1/N of the tensor to its right neighbour and receives as
/// many from its left one. Lengths that are no multiple of N do.
pub fn all_reduce(link: &Link, tensor: &mut Tensor) -> Result<()> {
    carry_out(&Schedule::new(link.rank(), link.world_size()), link, tensor)
}

// ANCHOR: carry_out
/// What a schedule makes of the ranks' tensors.
pub fn carry_out(schedule: &Schedule, link: &Link, tensor: &mut Tensor) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.world_size());
    let chunk = |number| {
        let range = schedule::chunk(tensor.numel(), ranks, number);
        tensor.narrow(0, range.start as i64, range.len() as i64)
    };
    let pass = |&Iteration { send, recv }: &Iteration| {
        let received = chunk(recv).empty_like();
        link.exchange(chunk(send), (rank + 1) % ranks, received, (rank + ranks - 1) % ranks)
    };
    for iteration in &schedule.scatter_reduce {
        let received = pass(iteration)?;
        let _ = chunk(iteration.recv).g_add_(&received);
    }
    for iteration in &schedule.all_gather {
        let received = pass(iteration)?;
        chunk(iteration.recv).copy_(&received);
    }
    Ok(())
}
// ANCHOR_END: carry_out
