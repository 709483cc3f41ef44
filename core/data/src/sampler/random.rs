//! Samplers that draw.
//!
//! Each epoch has a generator of its own, seeded with `seed + epoch`, as with a `DistributedSampler`. The global one,
//! which dropout uses, is unaffected. Without a seed, samplers draw from the global one, as PyTorch's do without a
//! `generator`. Training can then not be resumed mid-epoch.

use super::Sampler;
use crate::{Error, Result, check};
use tch::{Device, Kind, Tensor};
use tch_parallel_base::options;

options! {
    /// All samples, in a new order every epoch: `torch.utils.data.RandomSampler`.
    ///
    /// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`, and those of a
    /// [`DistributedSampler`](super::DistributedSampler) of [`Shard::WHOLE`](super::Shard::WHOLE) with the same seed.
    ///
    /// Without a seed, the global generator seeds each epoch, and `RandomSampler::new(None)` is Python's `shuffle=True`.
    /// Python's loader draws a [base seed](crate::DataLoaderOptions::draw_base_seed) as well.
    ///
    /// ```
    /// use tch_parallel::data::{RandomSampler, Sampler};
    ///
    /// assert_eq!(RandomSampler::new(42).indices(7, 0)?, [1, 6, 3, 5, 4, 0, 2]);
    ///
    /// tch::manual_seed(42);
    /// assert_eq!(RandomSampler::new(None).indices(7, 0)?, [5, 0, 1, 3, 2, 4, 6]);
    ///
    /// let ten_of_seven =
    ///     RandomSampler { replacement: true, num_samples: Some(10), ..RandomSampler::new(42) };
    /// assert_eq!(ten_of_seven.indices(7, 0)?.len(), 10);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct RandomSampler {
        /// Together with the epoch, it determines the order; `None` draws from the global generator in every epoch.
        pub seed: Option<u64>,
        /// Whether each index is drawn from all samples, so that some come several times and others not at all. A sample
        /// that comes twice in an epoch is [augmented](super::SampleRng) in the same way.
        pub replacement: bool = false,
        /// The number of samples per epoch, by default as many as there are. Without `replacement`,
        /// a larger number starts a new order each time all samples have been drawn.
        pub num_samples: Option<usize> = None,
    }
    /// A sampler of all samples, each of them once. Pass a number, or `None` for the global generator.
    pub fn new(seed: impl Into<Option<u64>>);
}

impl Sampler for RandomSampler {
    fn indices(&self, len: usize, epoch: u64) -> Result<Vec<usize>> {
        let num_samples = self.num_samples(len);
        let is_possible = self.num_samples.is_none() || (len > 0 && num_samples > 0);
        let found = format_args!("{num_samples} of a data set of {len}");
        let expected = "at least 1, of a data set that is not empty";
        check(is_possible, "num_samples", found, expected)?;
        let seed = Some(of_epoch(self.seed, epoch).map_or_else(drawn_seed, Ok)?);
        let (drawn, operation) = if self.replacement {
            (c10d_sys::random::randint(len, num_samples, seed), "randint")
        } else {
            (c10d_sys::random::randperm(len, num_samples, seed), "randperm")
        };
        drawn.map_err(Error::engine(operation))
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        rest_of(self.indices(len, epoch)?, self.seed, consumed)
    }

    fn num_samples(&self, len: usize) -> usize {
        self.num_samples.unwrap_or(len)
    }
}

/// The samples of a list, in a new order every epoch: `torch.utils.data.SubsetRandomSampler`.
///
/// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`, or without a generator.
#[derive(Debug, Clone)]
pub struct SubsetRandomSampler {
    /// The indices to choose from.
    pub indices: Vec<usize>,
    /// Together with the epoch, it determines the order; `None` draws from the global generator in every epoch.
    pub seed: Option<u64>,
}

impl SubsetRandomSampler {
    /// A sampler of these indices, each of them once.
    pub fn new(indices: impl Into<Vec<usize>>, seed: impl Into<Option<u64>>) -> Self {
        Self { indices: indices.into(), seed: seed.into() }
    }
}

impl Sampler for SubsetRandomSampler {
    fn indices(&self, _len: usize, epoch: u64) -> Result<Vec<usize>> {
        let len = self.indices.len();
        let order = c10d_sys::random::randperm(len, len, of_epoch(self.seed, epoch))
            .map_err(Error::engine("randperm"))?;
        Ok(order.into_iter().map(|position| self.indices[position]).collect())
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        rest_of(self.indices(len, epoch)?, self.seed, consumed)
    }

    fn num_samples(&self, _len: usize) -> usize {
        self.indices.len()
    }
}

options! {
    /// Draws each sample with its own probability, as for rare classes: `torch.utils.data.WeightedRandomSampler`.
    ///
    /// The indices of epoch `e` are Python's with `generator=torch.Generator().manual_seed(seed + e)`, and without a
    /// seed, those without a generator. This sampler knows nothing of ranks; a
    /// [`DistributedSamplerWrapper`](super::DistributedSamplerWrapper) divides what it draws.
    #[derive(Debug, Clone)]
    pub struct WeightedRandomSampler {
        /// The weight of each sample, at least 0. They need not add up to 1.
        pub weights: Vec<f64>,
        /// The number of samples per epoch, over all ranks.
        pub num_samples: usize,
        /// Whether a sample can be drawn again in the same epoch, with the same [augmentation](super::SampleRng).
        pub replacement: bool = true,
        /// Together with the epoch, it determines what is drawn; `None` draws from the global generator in every epoch.
        pub seed: Option<u64>,
    }
    /// A sampler that draws with replacement.
    pub fn new(weights: impl Into<Vec<f64>>, num_samples: usize, seed: impl Into<Option<u64>>);
}

impl Sampler for WeightedRandomSampler {
    /// # Errors
    /// [`Error::Tensor`] for weights that are negative or not finite or all 0, for a `num_samples` of
    /// 0, and without `replacement` for one greater than the number of positive weights.
    fn indices(&self, _len: usize, epoch: u64) -> Result<Vec<usize>> {
        let seed = of_epoch(self.seed, epoch);
        c10d_sys::random::multinomial(&self.weights, self.num_samples, self.replacement, seed)
            .map_err(Error::engine("multinomial"))
    }

    fn indices_after(&self, len: usize, epoch: u64, consumed: usize) -> Result<Vec<usize>> {
        rest_of(self.indices(len, epoch)?, self.seed, consumed)
    }

    fn num_samples(&self, _len: usize) -> usize {
        self.num_samples
    }
}

/// The seed that the global generator draws: `torch.empty((), dtype=torch.int64).random_().item()`.
pub(crate) fn drawn_seed() -> Result<u64> {
    let drawn = Tensor::f_empty([0i64; 0], (Kind::Int64, Device::Cpu))?.f_random_()?;
    Ok(i64::try_from(drawn)? as u64)
}

fn of_epoch(seed: Option<u64>, epoch: u64) -> Option<u64> {
    seed.map(|seed| seed.wrapping_add(epoch))
}

/// What is left of an epoch, which must not continue in another order than it began in.
fn rest_of(order: Vec<usize>, seed: Option<u64>, consumed: usize) -> Result<Vec<usize>> {
    let expected = "0 for a sampler without a seed, because the order of that epoch is gone";
    check(seed.is_some() || consumed == 0, "consumed", consumed, expected)?;
    Ok(order.into_iter().skip(consumed).collect())
}
