//! A ring all-reduce: which chunk goes to which neighbour when, which `ring show` draws as well, and the
//! exchange itself.

use crate::link::Link;
use tch::Tensor;
use tch_parallel::Result;

// ANCHOR: iteration
/// One rank's part in one iteration. It sends to its right neighbour, rank + 1, and receives from
/// its left one, both modulo the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Iteration {
    pub half: Half,
    /// The number of the chunk that it sends.
    pub send: usize,
    /// The number of the chunk that it receives.
    pub recv: usize,
}

/// What happens to a chunk that is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// It is added to what is there. After these N − 1 iterations rank r holds the whole sum of chunk
    /// r + 1.
    ScatterReduce,
    /// It replaces what is there. After these N − 1 iterations every rank holds all sums.
    AllGather,
}
// ANCHOR_END: iteration

// ANCHOR: schedule
/// One rank's part in a ring all-reduce: scatter-reduce, then all-gather, which begins one chunk
/// further.
pub fn schedule(rank: usize, ranks: usize) -> Vec<Iteration> {
    let halves = [(Half::ScatterReduce, rank), (Half::AllGather, rank + 1)];
    halves.into_iter().flat_map(|(half, first)| iterations(half, first, ranks)).collect()
}

/// Chunk `first` is sent first, and then always the one that was received before.
fn iterations(half: Half, first: usize, ranks: usize) -> impl Iterator<Item = Iteration> {
    (1..ranks).map(move |iteration| Iteration {
        half,
        send: (first + ranks + 1 - iteration) % ranks,
        recv: (first + ranks - iteration) % ranks,
    })
}
// ANCHOR_END: schedule

/// Sums a flat tensor of any length over all ranks, in place, to the same bits on every rank.
pub fn all_reduce(link: &Link, tensor: &mut Tensor) -> Result<()> {
    carry_out(&schedule(link.group.rank(), link.group.world_size()), link, tensor)
}

// ANCHOR: carry_out
/// Carries out a schedule on this rank's tensor.
pub fn carry_out(schedule: &[Iteration], link: &Link, tensor: &mut Tensor) -> Result<()> {
    let (rank, ranks) = (link.group.rank(), link.group.world_size());
    let (right, left) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    // Views; the first are longer by one if the length is not a multiple of the number of ranks.
    let mut chunks = tensor.tensor_split(ranks as i64, 0);
    for &Iteration { half, send, recv } in schedule {
        let (sent, received) = (chunks[send].shallow_clone(), chunks[recv].empty_like());
        let received = link.exchange(sent, right, received, left)?;
        match half {
            Half::ScatterReduce => chunks[recv] += received,
            Half::AllGather => chunks[recv].copy_(&received),
        }
    }
    Ok(())
}
// ANCHOR_END: carry_out
