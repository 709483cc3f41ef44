//! Data sets, the samplers that share them out among ranks, and the loader that makes batches.
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`], [`Batch`]: what a loader needs to know about data |
//! | `sampler` | [`Sampler`]: which samples, in which order; [`DistributedSampler`] shares them out |
//! | `loader` | [`DataLoader`]: batches, made ahead by worker threads |
//! | [`idx`] | the file format of MNIST |
//! | `mnist` | [`Mnist`]: the digits, or Fashion-MNIST |
//! | `download` | fetches full MNIST into a cache (feature `download`) |

mod dataset;
#[cfg(feature = "download")]
pub mod download;
pub mod idx;
mod loader;
mod mnist;
mod sampler;

pub use dataset::{Batch, Dataset};
pub use loader::{DataLoader, DataLoaderOptions, Epoch};
pub use mnist::{FASHION_MNIST_DIR, Mnist, Split};
pub use sampler::{DistributedSampler, RandomSampler, Sampler, SequentialSampler, Shard};
