//! The order in which the values of virtual ranks are added, on any number of ranks: in pairs, then pairs of pairs.

use crate::{Result, data::Shard};
use std::ops::Range;
use tch::Tensor;

/// A tree with the virtual ranks as its leaves. A branch of n leaves has the largest power of two below n on its left, and
/// the others on its right. A row is the sum of a maximal branch whose leaves are all on one rank.
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

    /// The number of rows of these virtual ranks of one rank.
    pub(super) fn rows(&self, own: &Range<usize>) -> usize {
        rows(self.all(), own)
    }

    /// The largest `count` of any rank.
    pub(super) fn most(&self, count: impl Fn(&Range<usize>) -> usize) -> usize {
        self.ranks.iter().map(count).max().unwrap_or(1)
    }

    /// The most rows that a rank has after all of its shares.
    pub(super) fn most_rows(&self) -> usize {
        self.most(|own| self.rows(own))
    }

    /// The first `count` rows of each rank.
    pub(super) fn rows_of(
        &self,
        ranks: &[Tensor],
        count: impl Fn(&Range<usize>) -> usize,
    ) -> Result<Vec<Tensor>> {
        let own = self.ranks.iter().zip(ranks);
        let rows = own.flat_map(|(own, rows)| (0..count(own)).map(|row| rows.f_get(row as i64)));
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The sum of all ranks' rows.
    pub(super) fn sum(&self, ranks: &[Tensor]) -> Result<Tensor> {
        self.sum_of(self.all(), &self.rows_of(ranks, |own| self.rows(own))?)
    }

    fn sum_of(&self, branch: Range<usize>, all: &[Tensor]) -> Result<Tensor> {
        if let [row] = all {
            return Ok(row.shallow_clone());
        }
        let [left, right] = halves(branch);
        let in_left = self.ranks.iter().map(|own| rows(left.clone(), own)).sum();
        let (in_left, in_right) = all.split_at(in_left);
        let (mut sum, right) = (self.sum_of(left, in_left)?, self.sum_of(right, in_right)?);
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
