//! A ring all-reduce (chapter: all-reduce.md)
//!
//! Sum up `tensor` over the ranks, with messages to the next rank only, each with one chunk: `tensor.chunk(world_size, 0)`
//! returns them, and they share its memory. In `world_size - 1` rounds, each rank passes a chunk on and adds the one that
//! arrives to its own; then every chunk is complete on one rank. In as many rounds, complete chunks go around.
//! If all ranks wait in `send`, nobody receives: use `isend`, or `batch_isend_irecv`. The check has three ranks, in threads.

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
