//! PyTorch's distributed engine (c10d) for Rust.
//!
//! libtorch contains all of it: the store at which ranks meet, the process groups that move tensors
//! between them, and the `Reducer` that overlaps gradient exchange with the backward pass. None of
//! it has a C interface, so this crate compiles one (`csrc/`, with its rules in `csrc/c10d.h`) and
//! wraps it in safe handles. Policy is left to the `tch-parallel` crate: here, one function is one
//! call.
//!
//! # Layout
//!
//! - [`Store`]: keys and values that all ranks see.
//! - [`ProcessGroup`]: the collectives; each returns [`Work`] to wait for.
//! - [`Reducer`]: gradient buckets, reduced while the backward pass runs; [`GradBucket`] is the
//!   argument of its communication hooks.
//! - [`amp`]: autocast, and the check of scaled gradients.
//! - [`autograd`]: backward passes in parts, and a thread's state on another thread.
//! - [`backward_hooks`]: callbacks during a backward pass and at its end.
//! - [`storage`]: freeing the memory of tensors and allocating it again.
//! - [`AtomicTensor`]: parameters that threads share without a lock.
//! - [`backends`]: flags of libtorch's global context.
//! - [`device`]: this thread's current CUDA device.
//! - [`memory`]: live and peak bytes of each device, and of each part of the CPU's memory.
//! - [`profiler`]: what runs when, in a trace.
//! - [`stream`]: streams and events of CUDA devices.
//! - [`random`]: the state of the global generators, and samples drawn from a generator of their own.
//! - [`arithmetic`]: operations of tensors with numbers that return an error where tch's panic.
//! - [`foreach`]: one operation for a whole list of tensors, which on a GPU is one launch.
//! - [`tensor`]: tensor operations that tch lacks.
//! - [`exit`](fn@exit): the end of a process, without libtorch's static destructors.
//! - [`inherited_listener`]: a listening socket of the parent process.
//!
//! This is the only crate of the workspace with C++ and with unsafe code.

#![deny(missing_docs)]

pub mod amp;
mod arguments;
pub mod arithmetic;
pub mod autograd;
pub mod backends;
pub mod backward_hooks;
mod callback;
mod collectives;
mod comm_hook;
pub mod device;
mod error;
mod exit;
mod ffi;
pub mod foreach;
mod hogwild;
mod listener;
pub mod memory;
#[doc(hidden)]
pub mod pretended_cuda;
mod process_group;
pub mod profiler;
pub mod random;
mod reducer;
pub mod storage;
mod store;
pub mod stream;
pub mod tensor;
mod work;

pub use arguments::LONGEST_TIMEOUT;
pub use collectives::{Call, Message, ReduceOp};
pub use comm_hook::{Finish, GradBucket};
pub use error::{Error, ErrorKind, Result};
pub use exit::exit;
pub use hogwild::AtomicTensor;
pub use listener::inherited_listener;
#[doc(hidden)]
pub use process_group::probe_shared_memory;
pub use process_group::{GlooAddress, GlooOptions, ProcessGroup, Progress};
pub use reducer::{Reducer, ReducerOptions, bucket_order, set_bucket_order};
pub use store::{Store, TcpStoreOptions};
pub use work::Work;
