//! Communication hooks: other ways of exchanging gradients than a plain mean over the ranks.
//! `torch.distributed.algorithms.ddp_comm_hooks`
//!
//! Pass a hook to [`register_comm_hook`]. It is called with each bucket of gradients as soon as the
//! bucket is complete, and returns the tensor that replaces it.
//!
//! | file | what it holds |
//! |---|---|
//! | `comm_hook` | the trait [`CommHook`], and [`from_fn`], which makes a hook of a closure |
//! | `grad_bucket` | [`GradBucket`], the argument of a hook |
//! | `default_hooks` | [`AllReduce`]: the mean, as without a hook; [`Fp16Compress`], [`Bf16Compress`]: the mean in 16 bits; [`CompressWrapper`]: any other hook in 16 bits |
//! | `power_sgd` | [`PowerSgd`]: low-rank matrices instead of the gradients |
//! | `register` | how the engine calls a hook, and how its failures are reported |
//!
//! [`register_comm_hook`]: super::DistributedDataParallel::register_comm_hook

mod comm_hook;
mod default_hooks;
mod grad_bucket;
mod power_sgd;
pub(super) mod register;

pub use comm_hook::{CommHook, Finish, FromFn, from_fn};
pub use default_hooks::{
    AllReduce, Bf16Compress, CompressWrapper, Fp16Compress, bf16_compress_wrapper,
    fp16_compress_wrapper,
};
pub use grad_bucket::GradBucket;
pub use power_sgd::{CompressionStats, PowerSgd, PowerSgdOptions};
