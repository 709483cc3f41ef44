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
//! | `default_hooks` | [`AllReduce`]: the mean, as without a hook; [`Fp16Compress`], [`Bf16Compress`]: the mean in 16 bits; [`CompressWrapper`]: any other hook in 16 bits |
//! | `power_sgd` | [`PowerSgd`]: matrices of low rank in the place of the gradients |
//! | `register` | how a hook gets into the engine, and how its failures come out |
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
