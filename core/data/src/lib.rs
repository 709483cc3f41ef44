//! Data sets, samplers that divide them among ranks, and the loader that makes batches.
//!
//! Programs use it as `tch_parallel::data`.
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`]: the interface between data and loader |
//! | `iterable` | [`IterableDataset`]: samples that can only be read in order; [`ChainDataset`] |
//! | `tensor_dataset` | [`TensorDataset`]: samples are rows of tensors |
//! | `subset` | [`Subset`], [`random_split`]: parts of a data set |
//! | `concat_dataset` | [`ConcatDataset`]: several data sets as one |
//! | `stack_dataset` | [`StackDataset`]: two data sets side by side, each with a part of every sample |
//! | `sampler` | [`Sampler`]: which samples, in which order; [`DistributedSampler`] divides them among ranks |
//! | `loader` | [`DataLoader`]: batches, prefetched by worker threads |
//! | [`idx`] | the file format of MNIST |
//! | `mnist` | [`Mnist`]: the digits, or Fashion-MNIST |
//! | `batch_memory` | the reuse of batches' memory |
//! | `download` | downloads full MNIST or CIFAR-10 into a cache (feature `download`) |
//! | `images` | image files, CIFAR-10, MNIST in its format, and `transforms` (feature `images`) |

#![deny(missing_docs)]

mod batch_memory;
mod concat_dataset;
mod dataset;
#[cfg(feature = "download")]
pub mod download;
pub mod idx;
#[cfg(feature = "images")]
mod images;
mod iterable;
mod loader;
mod mnist;
mod sampler;
mod stack_dataset;
mod subset;
mod tensor_dataset;

use tch_parallel_base::{Error, Result, Tensors, check, check_file};

pub use concat_dataset::ConcatDataset;
pub use dataset::Dataset;
#[cfg(feature = "images")]
pub use images::*;
pub use iterable::{ChainDataset, IterableDataset, Samples, WorkerInfo};
pub use loader::{DataLoader, DataLoaderOptions, Epoch};
pub use mnist::{Mnist, Split};
pub use sampler::{
    BatchSampler, DistributedSampler, DistributedSamplerWrapper, RandomSampler, Sampler,
    SequentialSampler, Shard, ShardSampler, SubsetRandomSampler, WeightedRandomSampler,
};
pub use stack_dataset::StackDataset;
pub use subset::{Lengths, Subset, random_split};
pub use tensor_dataset::TensorDataset;
