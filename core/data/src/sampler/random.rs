//! Samplers that draw.
//!
//! Each epoch has a generator of its own, seeded with `seed + epoch` as a `DistributedSampler` does it. The global one,
//! which dropout uses, is unaffected. PyTorch's samplers without a `generator` draw from it, so that a training could
//! not be resumed in the middle of an epoch.

use super::Sampler;
use crate::{Error, Result};
use tch_parallel_base::options;

options! {
    /// All samples, in a new order every epoch: `torch.utils.data.RandomSampler`.
    ///
    /// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`, and those of a
    /// [`DistributedSampler`](super::DistributedSampler) of [`Shard::WHOLE`](super::Shard::WHOLE) with the same seed.
    /// Python's `DataLoader(shuffle=True)` seeds its epochs from the global generator instead.
    ///
    /// ```
    /// use tch_parallel::data::{RandomSampler, Sampler};
    ///
    /// assert_eq!(RandomSampler::new(42).indices(7, 0)?, [1, 6, 3, 5, 4, 0, 2]);
    ///
    /// let ten_of_seven =
    ///     RandomSampler { replacement: true, num_samples: Some(10), ..RandomSampler::new(42) };
    /// assert_eq!(ten_of_seven.indices(7, 0)?.len(), 10);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct RandomSampler {
        /// Together with the epoch, it determines the order.
        pub seed: u64,
        /// Whether each index is drawn from all samples, so that some come several times and others not at all.
        pub replacement: bool = false,
        /// The number of samples per epoch, by default as many as there are. Without `replacement`,
        /// a larger number starts a new order each time all samples have been drawn.
        pub num_samples: Option<usize> = None,
    }
    /// A sampler of all samples, each of them once.
    pub fn new(seed: u64);
}

impl Sampler for RandomSampler {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        if self.num_samples.is_some() && (len == 0 || self.num_samples == Some(0)) {
            let found = format!("{} of a data set of {len}", self.num_samples(len));
            let expected = "at least 1, of a data set that is not empty";
            return Err(Error::argument("num_samples", found, expected));
        }
        let (num_samples, seed) = (self.num_samples(len), self.seed.wrapping_add(epoch));
        let (drawn, operation) = if self.replacement {
            (c10d_sys::random::randint(len, num_samples, seed), "randint")
        } else {
            (c10d_sys::random::randperm(len, num_samples, seed), "randperm")
        };
        drawn.map_err(Error::engine(operation))
    }

    fn num_samples(&self, len: usize) -> usize {
        self.num_samples.unwrap_or(len)
    }
}

/// The samples of a list, in a new order every epoch: `torch.utils.data.SubsetRandomSampler`.
///
/// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`.
#[derive(Debug, Clone)]
pub struct SubsetRandomSampler {
    /// The indices to choose from.
    pub indices: Vec<usize>,
    /// Together with the epoch, it determines the order.
    pub seed: u64,
}

impl SubsetRandomSampler {
    /// A sampler of these indices, each of them once.
    pub fn new(indices: impl Into<Vec<usize>>, seed: u64) -> Self {
        Self { indices: indices.into(), seed }
    }
}

impl Sampler for SubsetRandomSampler {
    fn indices(&self, _len: usize, epoch: u64) -> Result<Vec<usize>> {
        let order = RandomSampler::new(self.seed).indices(self.indices.len(), epoch)?;
        Ok(order.into_iter().map(|position| self.indices[position]).collect())
    }

    fn num_samples(&self, _len: usize) -> usize {
        self.indices.len()
    }
}

options! {
    /// Draws each sample with a probability of its own: `torch.utils.data.WeightedRandomSampler`,
    /// to show rare classes more often, for example.
    ///
    /// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`. This sampler
    /// knows nothing of ranks; a [`DistributedSamplerWrapper`](super::DistributedSamplerWrapper) divides what it draws.
    #[derive(Debug, Clone)]
    pub struct WeightedRandomSampler {
        /// The weight of each sample, at least 0. They need not add up to 1.
        pub weights: Vec<f64>,
        /// The number of samples per epoch, over all ranks.
        pub num_samples: usize,
        /// Whether a sample can be drawn again in the same epoch.
        pub replacement: bool = true,
        /// Together with the epoch, it determines what is drawn.
        pub seed: u64,
    }
    /// A sampler that draws with replacement.
    pub fn new(weights: impl Into<Vec<f64>>, num_samples: usize, seed: u64);
}

impl Sampler for WeightedRandomSampler {
    /// # Errors
    /// [`Error::Tensor`] for weights that are negative or not finite or all 0, for a `num_samples` of
    /// 0, and without `replacement` for one greater than the number of positive weights.
    fn indices(&self, _len: usize, epoch: u64) -> Result<Vec<usize>> {
        let seed = self.seed.wrapping_add(epoch);
        c10d_sys::random::multinomial(&self.weights, self.num_samples, self.replacement, seed)
            .map_err(Error::engine("multinomial"))
    }

    fn num_samples(&self, _len: usize) -> usize {
        self.num_samples
    }
}
