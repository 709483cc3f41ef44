//! A ring all-reduce (chapter: all-reduce.md)
//!
//! Add up `tensor` over the ranks in place, sending only to the next rank, and only one chunk at a time.
//! `tensor.chunk(world_size, 0)` returns the chunks, which share its memory. For `world_size - 1` rounds, each rank
//! passes on a chunk and adds the one that arrives to its own. Then each chunk is complete on one rank, and in as many
//! further rounds the complete chunks go around, so all ranks have the same bits. If every rank waits in `send`, no
//! rank receives: use `isend` or `batch_isend_irecv`. The check uses three ranks, in threads. (`all_reduce` would pass
//! the check too; write it yourself.)

use crate::prelude::*;
use std::{panic::resume_unwind, thread};

pub fn ring(group: &ProcessGroup, tensor: &Tensor) -> Result<()> {
    todo!("pass chunks around: first to add them up, then to copy them")
}

pub fn check(group: &ProcessGroup, ring: fn(&ProcessGroup, &Tensor) -> Result<()>) -> Result<()> {
    let store = Store::hash()?;
    let of_rank = |rank: usize, store: Store| -> Result<Vec<f32>> {
        let small = ProcessGroup::with_store(&store, rank, 3, options())?;
        // Of these three numbers, 1 is lost or not, depending on which two are added first.
        let (plain, rounded) = ([1f32, 10.0, 100.0][rank], [1e8, 1.0, -1e8][rank]);
        let numbers = [plain, rounded, 2.0 * plain, rounded, 3.0 * plain, rounded];
        let tensor = Tensor::from_slice(&numbers);
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
    let expected = vec![sums[0].clone(); 2];
    agree_equal(group, "the bits of ranks 1 and 2, beside rank 0's,", &sums[1..], &expected)?;
    let plain: Vec<_> = sums[0].iter().copied().step_by(2).collect();
    agree_equal(group, "the sum of plain numbers", plain, vec![111.0, 222.0, 333.0])
}
