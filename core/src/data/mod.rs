//! Data sets, samplers that divide them among ranks, and the loader that makes batches.
//!
//! | file | what it holds |
//! |---|---|
//! | `dataset` | [`Dataset`], [`Batch`]: the interface between data and loader |
//! | `tensor_dataset` | [`TensorDataset`]: samples are rows of tensors |
//! | `sampler` | [`Sampler`]: which samples, in which order; [`DistributedSampler`] divides them among ranks |
//! | `loader` | [`DataLoader`]: batches, prefetched by worker threads |
//! | [`idx`] | the file format of MNIST |
//! | `mnist` | [`Mnist`]: the digits, or Fashion-MNIST |
//! | `batch_memory` | the reuse of batches' memory |
//! | `download` | downloads full MNIST or CIFAR-10 into a cache (feature `download`) |
//! | `images` | image files, CIFAR-10, MNIST in its format, and `transforms` (feature `images`) |

mod batch_memory;
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
