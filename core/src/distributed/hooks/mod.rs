//! Communication hooks: other ways of exchanging gradients than a plain mean over the ranks.
//! `torch.distributed.algorithms.ddp_comm_hooks`
//!
//! A hook is given to [`register_comm_hook`], gets each bucket of gradients as soon as it is
//! complete, and returns what is to take its place.
//!
//! | file | what it holds |
//! |---|---|
//! | `comm_hook` | the trait [`CommHook`], and [`from_fn`], which makes a hook of a closure |
//! | `grad_bucket` | [`GradBucket`]: what a hook gets |
//! | `allreduce` | [`AllReduce`]: the mean, as without a hook |
//! | `compress` | [`Fp16Compress`], [`Bf16Compress`]: the mean in 16 bits |
//! | `compress_wrapper` | any other hook in 16 bits |
//! | `power_sgd` | [`PowerSgd`]: matrices of low rank in the place of the gradients |
//! | `register` | how a hook gets into the engine, and how its failures come out |
//!
//! [`register_comm_hook`]: super::DistributedDataParallel::register_comm_hook

mod allreduce;
mod comm_hook;
mod compress;
mod compress_wrapper;
mod grad_bucket;
mod power_sgd;
pub(super) mod register;

pub use allreduce::AllReduce;
pub use comm_hook::{CommHook, Finish, FromFn, from_fn};
pub use compress::{Bf16Compress, Fp16Compress};
pub use compress_wrapper::{CompressWrapper, bf16_compress_wrapper, fp16_compress_wrapper};
pub use grad_bucket::GradBucket;
pub use power_sgd::{CompressionStats, PowerSgd, PowerSgdOptions};
