//! Divide a data set among ranks (chapter: sampler.md)
//!
//! The samples of an epoch come in this `order`. Return those of one rank, as the distributed sampler does: `order` is
//! continued from its beginning until its length is a multiple of `world_size`, and then rank `rank` takes every
//! `world_size`-th, beginning with number `rank`. A data set can be smaller than half the world.

use crate::prelude::*;

pub fn indices(order: &[i64], rank: usize, world_size: usize) -> Vec<i64> {
    todo!("pad the order and take this rank's part of it")
}

pub fn check(
    group: &ProcessGroup,
    indices: impl Fn(&[i64], usize, usize) -> Vec<i64>,
) -> Result<()> {
    let five = [4, 3, 2, 1, 0];
    agree_equal(group, "rank 0 of 2", indices(&five, 0, 2), vec![4, 2, 0])?;
    agree_equal(group, "rank 1 of 2", indices(&five, 1, 2), vec![3, 1, 4])?;
    agree_equal(group, "rank 2 of 4, with 8 samples", indices(&[0; 8], 2, 4), vec![0; 2])?;
    agree_equal(group, "rank 4 of 5, with 2 samples", indices(&[8, 9], 4, 5), vec![8])
}
