//! What the crates of [tch-parallel](https://crates.io/crates/tch-parallel) share.
//!
//! - [`LogicalDevice`], [`Devices`], [`memory`]: GPUs and logical devices, and the bytes that each
//!   holds.
//! - [`Event`], [`HostCopy`]: how far a device has come, and its numbers on their way to the host.
//! - [`hogwild`]: parameters that threads share without a lock.
//! - [`autocast`](autocast()), [`backends`]: in which kinds and how libtorch's operators compute; [`profiler`]: what runs
//!   when, in a trace.
//! - [`Tensors`]: what modules can take and return.
//! - [`parameters`], [`named_tensors`], [`tensor_file`]: a store's variables in PyTorch's order, as bytes
//!   in the format of safetensors, and as a file in that or in the format of `torch.save`.
//! - [`destination`]: files that are replaced as a whole.
//! - [`options!`]: options with PyTorch's defaults beside them.
//! - [`random`], [`file_size_limit`]: two things about the process that several crates must respect.
//! - [`Error`]: the one error type.
//!
//! Programs use it under the names of `tch_parallel`.

#![deny(missing_docs)]

mod autocast;
pub mod backends;
pub mod destination;
mod device;
mod devices;
pub mod error;
mod event;
pub mod file_size_limit;
pub mod hogwild;
mod host_copy;
pub mod memory;
pub mod named_tensors;
mod options;
pub mod parameters;
pub mod profiler;
mod pytorch;
pub mod random;
pub mod tensor_file;
pub mod tensors;

pub use autocast::autocast;
pub use c10d_sys::lock;
pub use device::{DeviceGuard, LogicalDevice, cuda_is_built, no_gpu};
pub use devices::Devices;
pub use error::{Error, Result, check, check_file};
pub use event::Event;
pub use host_copy::HostCopy;
pub use tensors::{Replicated, Shared, Tensors};
