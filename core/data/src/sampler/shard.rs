//! Every image once, whatever the number of ranks.

use super::{Sampler, Shard};
use crate::Result;

/// A rank's part of a data set, in order: every `num_replicas`-th sample, and none twice.
///
/// A `DistributedSampler` repeats the first samples until all ranks have the same number. Training requires that, since
/// all ranks take part in every step; in a validation those samples would count twice.
#[derive(Debug, Clone, Copy)]
pub struct ShardSampler(pub Shard);

impl Sampler for ShardSampler {
    // ANCHOR: indices
    fn indices(&self, len: usize, _epoch: u64) -> Result<Vec<usize>> {
        Ok((0..len).filter(|index| self.0.has(*index)).collect())
    }
    // ANCHOR_END: indices

    fn indices_after(&self, len: usize, _epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        Ok((consumed.min(len)..len).filter(|index| self.0.has(index - consumed)).collect())
    }

    fn num_samples(&self, len: usize) -> usize {
        (0..len).filter(|index| self.0.has(*index)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_together_have_every_sample_once() {
        for (len, ranks) in [(10, 1), (10, 2), (10, 3), (2, 3), (0, 2)] {
            let (mut all, mut rest) = (Vec::new(), Vec::new());
            for rank in 0..ranks {
                let sampler = ShardSampler(Shard::new(rank, ranks).unwrap());
                let indices = sampler.indices(len, 0).unwrap();
                assert_eq!(indices.len(), sampler.num_samples(len));
                all.extend(indices);
                rest.extend(sampler.indices_after(len, 0, 3).unwrap());
            }
            all.sort_unstable();
            rest.sort_unstable();
            assert_eq!(all, (0..len).collect::<Vec<_>>());
            assert_eq!(rest, (3..len).collect::<Vec<_>>());
        }
    }
}
