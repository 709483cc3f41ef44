//! Clip the norm of sharded gradients (chapter: sharding.md)
//!
//! Each rank has one part of every gradient. If the norm of the whole gradient exceeds `max_norm`, scale all parts in
//! place so that it becomes `max_norm`. Return the norm before scaling.

use crate::prelude::*;

pub fn clip_shards(group: &ProcessGroup, shards: &mut [Tensor], max_norm: f64) -> Result<f64> {
    todo!("all-reduce the sum of squares, and scale")
}

pub fn check(
    group: &ProcessGroup,
    clip_shards: impl Fn(&ProcessGroup, &mut [Tensor], f64) -> Result<f64>,
) -> Result<()> {
    let own = [[2f32, 0.0], [-4.0, 4.0]][group.rank()];
    for (max_norm, factor) in [(10.0, 1.0), (1.5, 0.25)] {
        let mut shards = own.map(|number| Tensor::from_slice(&[number]));
        let norm = clip_shards(group, &mut shards, max_norm)?;
        agree(group, "the norm", &norm.into(), &6.0.into())?;
        let expected = Tensor::from_slice(&own) * factor;
        agree(group, "the part of the gradient", &Tensor::cat(&shards, 0), &expected)?;
    }
    Ok(())
}
