//! Data-parallel and distributed training for [tch], on PyTorch's own engine.
//!
//! If you know `torch.nn.parallel` and `torch.distributed`, the names are the same. The
//! collectives, the gradient buckets and their overlap with the backward pass are PyTorch's C++
//! code, bound by the crate [`c10d_sys`]. With the same seed, data and number of threads, the
//! losses equal Python's to the last bit, and Rust ranks and Python ranks can train in one job.
//!
//! # Layout
//!
//! - [`distributed`]: the process group and its collectives, [`DistributedDataParallel`], metrics
//!   over all ranks.
//! - [`data_parallel`]: one process, several devices: [`DataParallel`] and a parallel criterion.
//! - [`device`], [`memory`]: GPUs and logical devices, and the bytes that each holds.
//! - [`hogwild`]: parameters that threads share without a lock.
//! - [`tensors`]: what modules can take and return.
//! - [`data`]: data sets, [`DistributedSampler`](data::DistributedSampler) and the loader; MNIST,
//!   CIFAR-10, image folders and torchvision's transforms.
//! - [`nn`]: layers initialised as in PyTorch, and [`SyncBatchNorm`](nn::SyncBatchNorm).
//! - [`optim`]: optimizers with PyTorch's order of operations and a state that can be saved,
//!   learning-rate schedules, gradient clipping.
//! - [`amp`]: mixed precision: autocast and gradient scaling.
//! - [`checkpoint`]: weights, or a whole training, in a file.
//! - [`error`]: the library's one error type.
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

pub use c10d_sys::exit;
pub use device::{Devices, LogicalDevice};
pub use error::{Error, Result};
pub use tensors::{Replicated, Shared, Tensors};
