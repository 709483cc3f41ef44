//! Which gradient is in which bucket (chapter: ddp-inside.md)
//!
//! Parameters number 0, 1, … have gradients of so many `bytes`. Divide their numbers among buckets as DistributedDataParallel
//! does: in the reverse order, because the backward pass computes the last one first, and a bucket is complete as soon as it
//! holds at least `capacity` bytes.

use crate::prelude::*;

pub fn buckets(bytes: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    todo!("fill buckets, beginning with the last parameter")
}

pub fn check(
    group: &ProcessGroup,
    buckets: impl Fn(&[usize], usize) -> Vec<Vec<usize>>,
) -> Result<()> {
    let found = buckets(&[4, 4, 10, 2, 3], 6);
    agree_equal(group, "4, 4, 10, 2 and 3 bytes", found, vec![vec![4, 3, 2], vec![1, 0]])?;
    agree_equal(group, "1 and 8 bytes", buckets(&[1, 8], 6), vec![vec![1], vec![0]])?;
    agree_equal(group, "without parameters", buckets(&[], 6), vec![])
}
