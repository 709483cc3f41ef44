//! Which gradient is in which bucket (chapter: ddp-inside.md)
//!
//! `bytes[i]` is the size of the gradient of parameter `i`. Return the parameters of each bucket, as
//! DistributedDataParallel fills them: in reverse order, because the backward pass computes the last gradient first. A
//! bucket is complete as soon as it holds at least `capacity` bytes.

use crate::prelude::*;

pub fn buckets(bytes: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    todo!("fill buckets, beginning with the last parameter")
}

pub fn check(group: &ProcessGroup, buckets: fn(&[usize], usize) -> Vec<Vec<usize>>) -> Result<()> {
    let found = buckets(&[4, 4, 10, 2, 3], 6);
    agree_equal(group, "the list of buckets", found, vec![vec![4, 3, 2], vec![1, 0]])?;
    agree_equal(group, "the list of buckets", buckets(&[1, 8], 6), vec![vec![1], vec![0]])?;
    agree_equal(group, "the list of buckets", buckets(&[1, 6], 6), vec![vec![1], vec![0]])?;
    agree_equal(group, "the list without parameters", buckets(&[], 6), vec![])
}
