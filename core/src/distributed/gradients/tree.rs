//! The order in which the values of virtual ranks are added, whichever rank has which: pairwise, as in a knockout.

use crate::{Result, data::Shard};
use std::ops::Range;
use tch::Tensor;

/// A tree with the virtual ranks as its leaves. A branch of n leaves has the largest power of two below n on its left, and
/// the others on its right. A row is the sum of a largest branch of which one rank has all leaves.
#[derive(Debug)]
pub(super) struct Tree {
    /// By rank, its virtual ranks.
    pub(super) ranks: Vec<Range<usize>>,
}

impl Tree {
    pub(super) fn new(count: usize, ranks: usize) -> Result<Self> {
        let shard = |rank| Shard::new(rank, ranks)?.with_virtual_ranks(count);
        let own = |shard: Shard| shard.rank()..shard.rank() + shard.parts();
        Ok(Tree { ranks: (0..ranks).map(|rank| Ok(own(shard(rank)?))).collect::<Result<_>>()? })
    }

    /// All virtual ranks.
    pub(super) fn all(&self) -> Range<usize> {
        0..self.ranks.iter().map(Range::len).sum()
    }

    /// How many rows these virtual ranks of one rank come to.
    pub(super) fn rows(&self, own: &Range<usize>) -> usize {
        rows(self.all(), own)
    }

    /// The most of something that a rank has.
    pub(super) fn most(&self, count: impl Fn(&Range<usize>) -> usize) -> usize {
        self.ranks.iter().map(count).max().unwrap_or(1)
    }

    /// The sum of a branch from the rows of all ranks in it.
    pub(super) fn sum(&self, branch: Range<usize>, all: &[Tensor]) -> Result<Tensor> {
        if let [row] = all {
            return Ok(row.shallow_clone());
        }
        let [left, right] = halves(branch);
        let in_left = self.ranks.iter().map(|own| rows(left.clone(), own)).sum();
        let (in_left, in_right) = all.split_at(in_left);
        let (mut sum, right) = (self.sum(left, in_left)?, self.sum(right, in_right)?);
        Ok(if in_left.len() > 1 { sum.f_add_(&right)? } else { sum.f_add(&right)? })
    }
}

fn rows(branch: Range<usize>, own: &Range<usize>) -> usize {
    let common = own.end.min(branch.end).saturating_sub(own.start.max(branch.start));
    match common {
        0 => 0,
        all if all == branch.len() => 1,
        _ => halves(branch).map(|half| rows(half, own)).iter().sum(),
    }
}

fn halves(branch: Range<usize>) -> [Range<usize>; 2] {
    let middle = branch.start + branch.len().next_power_of_two() / 2;
    [branch.start..middle, middle..branch.end]
}
