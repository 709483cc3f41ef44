//! Communication hooks replace the mean over the ranks. `torch.distributed.algorithms.ddp_comm_hooks`
//!
//! A model is wrapped with its hook. The hook is called with each bucket of gradients as soon as the bucket is
//! complete, and returns the tensor that replaces it. PyTorch's counterpart is `model.register_comm_hook`.
//!
//! ```
//! # use tch::nn;
//! # use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};
//! use tch_parallel::distributed::{DdpOptions, hooks};
//!
//! # let group = ProcessGroup::from_env()?;
//! # let vs = nn::VarStore::new(group.device());
//! # let module = nn::linear(vs.root(), 4, 1, Default::default());
//! let options = DdpOptions {
//!     comm_hook: Some(Box::new(hooks::Fp16Compress)), // half the bytes
//!     ..Default::default()
//! };
//! let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
//! assert_eq!(model.logging_data()?.comm_hook, "fp16_compress_hook");
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! If a hook returns an error or panics, [`backward`] returns it; gradients cannot be exchanged afterwards, so end the
//! program. While a hook runs, its model can make no other pass: a hook that uses it gets an error.
//!
//! | file | what it holds |
//! |---|---|
//! | `comm_hook` | the trait [`CommHook`], and [`from_fn`], which makes a hook of a closure |
//! | `grad_bucket` | [`GradBucket`], the argument of a hook |
//! | `default_hooks` | [`AllReduce`]: the mean, as without a hook; [`Fp16Compress`], [`Bf16Compress`]: the mean in 16 bits; [`CompressWrapper`]: any other hook in 16 bits |
//! | `post_local_sgd` | [`PostLocalSgd`]: after some steps the mean over a subgroup |
//! | `power_sgd` | [`PowerSgd`]: low-rank matrices instead of the gradients |
//! | `quantization` | [`Quantization`]: gradients in 8 bits |
//! | `optimizer_overlap` | [`HookThenOptimizer`]: an optimizer's step for each bucket |
//! | `register` | how the engine calls a hook, and how its failures are reported |
//!
//! [`backward`]: crate::distributed::DistributedDataParallel::backward

mod comm_hook;
mod default_hooks;
mod grad_bucket;
mod optimizer_overlap;
mod post_local_sgd;
mod power_sgd;
mod quantization;
pub(super) mod register;

pub use comm_hook::{CommHook, Finish, FromFn, from_fn};
pub use default_hooks::{AllReduce, Bf16Compress, CompressWrapper, Fp16Compress};
pub use default_hooks::{bf16_compress_wrapper, fp16_compress_wrapper};
pub use grad_bucket::GradBucket;
pub(super) use grad_bucket::gradients_in;
pub use optimizer_overlap::HookThenOptimizer;
pub use post_local_sgd::PostLocalSgd;
pub use power_sgd::{CompressionStats, PowerSgd, PowerSgdOptions};
pub use quantization::Quantization;
