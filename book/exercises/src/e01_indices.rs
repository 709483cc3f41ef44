//! Divide a data set among ranks (chapter: sampler.md)
//!
//! The samples of an epoch come in `order`. Return those of one rank, as the distributed sampler does: repeat `order`
//! from its beginning until its length is a multiple of `world_size`, then take every `world_size`-th sample, starting
//! with number `rank`. A data set can have fewer samples than there are ranks.

use crate::prelude::*;

pub fn indices(order: &[i64], rank: usize, world_size: usize) -> Vec<i64> {
    todo!("pad the order and take this rank's part of it")
}

pub fn check(group: &ProcessGroup, indices: fn(&[i64], usize, usize) -> Vec<i64>) -> Result<()> {
    let five = [4, 3, 2, 1, 0];
    agree_equal(group, "the part of rank 0 of 2", indices(&five, 0, 2), vec![4, 2, 0])?;
    agree_equal(group, "the part of rank 1 of 2", indices(&five, 1, 2), vec![3, 1, 4])?;
    agree_equal(group, "the part of rank 4 of 5", indices(&[8, 9], 4, 5), vec![8])
}
