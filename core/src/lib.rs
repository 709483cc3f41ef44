//! Data-parallel and distributed training for [tch], on PyTorch's own engine.
//!
//! If you know `torch.nn.parallel` and `torch.distributed`, the names are the same. Collectives, gradient buckets and
//! their overlap with the backward pass are PyTorch's C++ code, bound by [`c10d_sys`]. With the same seed, data and
//! number of threads, the losses equal Python's to the last bit, and Rust ranks and Python ranks can train in one job.
//!
//! # Layout
//!
//! - [`distributed`]: the process group and its collectives, [`DistributedDataParallel`], metrics
//!   over all ranks.
//! - [`data_parallel`]: one process, several devices: [`DataParallel`] and a parallel criterion.
//! - [`amp`]: mixed precision: autocast and gradient scaling.
//! - [`checkpoint`]: weights, or a whole training, in a file.
//! - [`profiler`]: what runs when, in a trace.
//! - [`backends`]: how cuDNN chooses its algorithms.
//! - [`hogwild`]: parameters that threads share without a lock.
//!
//! Four crates below this one can be used without it, and are named here for programs that use all:
//!
//! - [`data`] (`tch-parallel-data`): data sets, [`DistributedSampler`](data::DistributedSampler) and
//!   the loader; MNIST, CIFAR-10, image folders and torchvision's transforms.
//! - [`nn`] (`tch-parallel-nn`): layers initialised as in PyTorch. Here they have
//!   [`SyncBatchNorm`](nn::SyncBatchNorm) too.
//! - [`optim`] (`tch-parallel-optim`): optimizers with PyTorch's order of operations and a state that
//!   can be saved, learning-rate schedules, gradient clipping. Here they have
//!   [`ZeroRedundancyOptimizer`](optim::ZeroRedundancyOptimizer) too.
//! - `tch-parallel-base`: [`Devices`] and [`memory`], GPUs and logical devices with the bytes that
//!   each holds; [`Event`], [`HostCopy`]; [`Tensors`], what modules can take and return; [`Error`], the
//!   one error type.
//!
//! # Constructors
//!
//! Constructors take, in this order: what is wrapped, its variables' store, group or devices, options.
//!
//! ```
//! # use tch::nn::{self, VarStore};
//! # use tch_parallel::Devices;
//! # use tch_parallel::data_parallel::DataParallel;
//! # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
//! # let build = |path: &nn::Path| nn::linear(path / "fc", 4, 3, Default::default());
//! # let group = ProcessGroup::from_env()?;
//! # let devices = Devices::cpu(2)?;
//! # let [vs, other] = [(); 2].map(|()| VarStore::new(group.device()));
//! # let module = build(&other.root());
//! let model = DataParallel::new(build, &vs, &devices)?;
//! # let vs = other;
//! let model = DistributedDataParallel::new(module, &vs, &group)?;
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! [`DataParallel`]: data_parallel::DataParallel
//! [`DistributedDataParallel`]: distributed::DistributedDataParallel

#![deny(missing_docs)]

#[macro_use]
mod debug_parts;

pub mod amp;
pub mod checkpoint;
pub mod data_parallel;
pub mod distributed;
pub mod elastic;
pub mod nn;
pub mod optim;
pub mod profiler;

use tch_parallel_base::{check, check_file};

pub use c10d_sys::exit;
#[doc(inline)]
pub use tch_parallel_base::{
    DeviceGuard, Devices, Error, Event, HostCopy, LogicalDevice, Replicated, Result, Shared,
    Tensors, backends, cuda_is_built, hogwild, memory,
};
#[doc(inline)]
pub use tch_parallel_data as data;
