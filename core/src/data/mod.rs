//! Data sets, the samplers that share them out among ranks, and the loader that makes batches.
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`], [`Batch`]: what a loader needs to know about data |
//! | `tensor_dataset` | [`TensorDataset`]: samples that are rows of tensors |
//! | `sampler` | [`Sampler`]: which samples, in which order; [`DistributedSampler`] shares them out |
//! | `loader` | [`DataLoader`]: batches, made ahead by worker threads |
//! | [`idx`] | the file format of MNIST |
//! | `mnist` | [`Mnist`]: the digits, or Fashion-MNIST |
//! | `download` | fetches full MNIST or CIFAR-10 into a cache (feature `download`) |
//! | `images` | image files, CIFAR-10, MNIST in its shape, and `transforms` (feature `images`) |

mod dataset;
#[cfg(feature = "download")]
pub mod download;
pub mod idx;
#[cfg(feature = "images")]
mod images;
mod loader;
mod mnist;
mod sampler;
mod tensor_dataset;

pub use dataset::{Batch, Dataset};
#[cfg(feature = "images")]
pub use images::*;
pub use loader::{DataLoader, DataLoaderOptions, Epoch};
pub use mnist::{FASHION_MNIST_DIR, Mnist, Split};
pub use sampler::{DistributedSampler, RandomSampler, Sampler, SequentialSampler, Shard};
pub use tensor_dataset::TensorDataset;
