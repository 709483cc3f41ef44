//! Random numbers for transforms.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// The random numbers of one sample in one epoch.
///
/// They depend only on seed, epoch and index: a sample's augmentation does not depend on worker thread, batch or rank,
/// and changes in the next epoch. In PyTorch it depends on the number of workers, each of which has a generator.
///
/// ChaCha with 8 rounds: its 256-bit key holds all three numbers unchanged, so no two samples share a stream.
#[derive(Debug, Clone)]
pub struct SampleRng(ChaCha8Rng);

impl SampleRng {
    // ANCHOR: new
    /// The generator of sample `index` in epoch `epoch`.
    pub fn new(seed: u64, epoch: u64, index: usize) -> Self {
        let mut key = [0; 32];
        for (bytes, number) in key.chunks_exact_mut(8).zip([seed, epoch, index as u64]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }
    // ANCHOR_END: new

    /// A uniformly distributed number between `low` and `high`: `uniform_` of a tensor. If both are equal, that number.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    /// A uniformly distributed integer from the range: `torch.randint`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn randint(&mut self, range: Range<usize>) -> usize {
        self.0.random_range(range)
    }

    /// True with probability `p`: `torch.rand(1) < p`.
    pub fn bernoulli(&mut self, p: f64) -> bool {
        self.0.random::<f64>() < p
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u64, epoch: u64, index: usize) -> f64 {
        SampleRng::new(seed, epoch, index).uniform(0.0, 1.0)
    }

    #[test]
    fn seed_epoch_and_index_each_give_another_stream() {
        let draws = [first(0, 0, 0), first(1, 0, 0), first(0, 1, 0), first(0, 0, 1)];
        for (number, draw) in draws.iter().enumerate() {
            assert!(!draws[..number].contains(draw), "{draws:?}");
        }
        assert_eq!(first(3, 4, 5), first(3, 4, 5));
    }

    #[test]
    fn what_is_drawn_stays_the_same_from_release_to_release() {
        let mut rng = SampleRng::new(42, 1, 7);
        let draws = (rng.uniform(0.0, 1.0), rng.randint(0..1000), rng.bernoulli(0.5));
        assert_eq!(draws, (0.40873972382423474, 843, true));
    }

    #[test]
    fn draws_are_spread_evenly() {
        const DRAWS: usize = 10_000;
        // Five standard deviations of a binomial count.
        let near = |count: usize, p: f64| {
            let deviation = (count as f64 - DRAWS as f64 * p).abs();
            assert!(deviation < 5.0 * (DRAWS as f64 * p * (1.0 - p)).sqrt(), "{count} of {p}");
        };
        let mut tenths = [0; 10];
        let (mut low, mut heads) = (0, 0);
        for index in 0..DRAWS {
            let mut rng = SampleRng::new(0, 0, index);
            tenths[rng.randint(0..10)] += 1;
            low += usize::from(rng.uniform(2.0, 6.0) < 3.0);
            heads += usize::from(rng.bernoulli(0.5));
        }
        tenths.into_iter().for_each(|count| near(count, 0.1));
        near(low, 0.25);
        near(heads, 0.5);
    }
}
