//! A ring all-reduce (chapter: all-reduce.md)
//!
//! Add up `tensor` over the ranks in place, sending only to the next rank, and only one chunk at a time.
//! `tensor.chunk(world_size, 0)` returns the chunks, which share its memory. For `world_size - 1` rounds, each rank
//! passes on a chunk and adds the one that arrives to its own. Then each chunk is complete on one rank, and in as many
//! further rounds the complete chunks go around. If every rank waits in `send`, no rank receives: use `isend` or
//! `batch_isend_irecv`. The check uses three ranks, in threads.

use crate::prelude::*;
use std::panic::resume_unwind;
use std::thread;

pub fn ring(group: &ProcessGroup, tensor: &Tensor) -> Result<()> {
    todo!("pass chunks around: first to add them up, then to copy them")
}

pub fn check(
    group: &ProcessGroup,
    ring: impl Fn(&ProcessGroup, &Tensor) -> Result<()> + Sync,
) -> Result<()> {
    let store = Store::hash()?;
    let of_rank = |rank: usize, store: Store| -> Result<Vec<f32>> {
        let small = ProcessGroup::with_store(&store, rank, 3, ProcessGroupOptions::default())?;
        let tensor = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]) * 10f64.powi(rank as i32);
        ring(&small, &tensor)?;
        Ok(Vec::try_from(tensor)?)
    };
    let ranks = (0..3).map(|rank| Ok((rank, store.try_clone()?))).collect::<Result<Vec<_>>>()?;
    let sums = thread::scope(|scope| {
        let start = |(rank, store)| scope.spawn(move || of_rank(rank, store));
        let threads: Vec<_> = ranks.into_iter().map(start).collect();
        let joined = threads.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
        joined.collect::<Result<Vec<_>>>()
    })?;
    let expected = vec![111.0, 222.0, 333.0, 444.0, 555.0, 666.0];
    agree_equal(group, "the sum on ranks 0, 1 and 2", sums, vec![expected; 3])
}
