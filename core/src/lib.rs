//! Data-parallel and distributed training for [tch], on PyTorch's own engine.
//!
//! Who knows `torch.nn.parallel` and `torch.distributed` finds them here under their names: the
//! collectives, the gradient buckets and their overlap with the backward pass are PyTorch's C++
//! code, bound by the crate [`c10d_sys`]. The same seed, data and thread count give the same
//! losses as in Python, to the last bit, and a Rust rank and a Python rank can train in one job.
//!
//! # Layout
//!
//! - [`distributed`]: the process group and its collectives, [`DistributedDataParallel`], metrics
//!   over all ranks.
//! - [`data_parallel`]: one process and several devices; [`DataParallel`], and a criterion that is
//!   parallel as well.
//! - [`device`], [`memory`]: GPUs and logical devices, and how many bytes live on each.
//! - [`hogwild`]: parameters that threads share without a lock.
//! - [`tensors`]: what modules may take and return.
//! - [`data`]: data sets, [`DistributedSampler`](data::DistributedSampler), the loader; MNIST, CIFAR-10,
//!   image folders and torchvision's transforms.
//! - [`nn`]: layers initialised as PyTorch's are, [`SyncBatchNorm`](nn::SyncBatchNorm).
//! - [`optim`]: optimizers with PyTorch's order of operations and a state that can be saved,
//!   learning-rate schedules, gradient clipping.
//! - [`amp`]: mixed precision: autocast, and the scaling of gradients.
//! - [`checkpoint`]: weights, and whole trainings, in a file.
//! - [`error`]: the one error type.
//!
//! [`DataParallel`]: data_parallel::DataParallel
//! [`DistributedDataParallel`]: distributed::DistributedDataParallel

#![deny(missing_docs)]

pub mod amp;
pub mod checkpoint;
pub mod data;
pub mod data_parallel;
pub mod device;
pub mod distributed;
pub mod error;
pub mod hogwild;
pub mod memory;
mod named_tensors;
pub mod nn;
pub mod optim;
mod parameters;
pub mod tensors;

pub use device::{Devices, LogicalDevice};
pub use error::{Error, Result};
pub use tensors::{Replicated, Shared, Tensors};
