//! PyTorch's distributed engine (c10d) for Rust.
//!
//! libtorch contains all of it: the store at which ranks meet, the process groups that move tensors between them, and
//! the `Reducer` that overlaps gradient exchange with the backward pass. None of it has a C interface, so this crate
//! compiles one (`csrc/`, with its rules in `csrc/c10d.h`) and wraps it in safe handles. Policy is left to the
//! `tch-parallel` crate: here, one function is one call.
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
mod delayed_all_reduce;
pub mod device;
mod error;
mod exit;
mod ffi;
pub mod foreach;
mod hogwild;
mod listener;
mod lock;
pub mod memory;
mod owned;
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
mod turns;
mod work;

pub use arguments::LONGEST_TIMEOUT;
pub use collectives::{Call, Message, ReduceOp};
pub use comm_hook::{Finish, GradBucket};
pub use delayed_all_reduce::DelayedAllReduce;
pub use error::{Error, Result};
pub use exit::exit;
pub use ffi::{ErrorKind, Progress, ReducerOptions};
pub use hogwild::AtomicTensor;
pub use listener::inherited_listener;
pub use lock::lock;
#[doc(hidden)]
pub use process_group::probe_shared_memory;
pub use process_group::{GlooAddress, GlooOptions, ProcessGroup};
pub use reducer::{Reducer, bucket_order, is_in_reducer, set_bucket_order, set_data};
pub use store::{Store, TcpStoreOptions};
pub use turns::{Turn, in_turns};
pub use work::Work;
