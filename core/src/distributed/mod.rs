//! Several processes train one model: `torch.distributed`.
//!
//! | module | what it holds |
//! |---|---|
//! | `group` | how ranks meet, and the group that they make: [`ProcessGroup`], [`Store`], [`Env`] |
//! | `collectives` | what they exchange: all of [`ProcessGroup`]'s collectives, and messages |
//! | `gradients` | [`DistributedDataParallel`], its [`hooks`] and relatives |
//! | `fsdp` | [`FullyShard`]: models larger than a device |
//! | `join` | [`join`](fn@join): uneven inputs, with different numbers of steps on the ranks |
//! | `spawn` | [`spawn`](fn@spawn): ranks that a program starts itself |
//! | `fault` | who is to blame when an exchange fails; [`record`](fn@record) |
//!
//! Each may use those that stand after it here: `gradients` and `fsdp`, `join`, `collectives`, `group`, `fault`.

mod collectives;
mod fault;
pub(crate) mod fsdp;
mod gradients;
mod group;
pub(crate) mod join;
mod spawn;

pub use c10d_sys::ReduceOp;
pub use collectives::{AverageMeter, P2pOp, Pending, functional};
pub(crate) use collectives::{copy_each, gather, is_in_step, parts_like, refuse_in_a_part, sum};
pub(crate) use fault::blame::for_the_engine;
pub use fault::record;
pub use fsdp::{FsdpModule, FullyShard, FullyShardOptions, MixedPrecisionPolicy};
pub use fsdp::{ReshardAfterForward, full_size};
pub use gradients::{
    ApexDistributedDataParallel, ApexOptions, BufferCommHook, BufferCommHookLocation,
    DdpLoggingData, DdpOptions, DistributedDataParallel, MixedPrecision, NoSync,
    PeriodicModelAverager, average_parameters, hooks,
};
pub(crate) use gradients::{bucket_order, start_mean};
pub use group::{
    Backend, DeviceChoice, DeviceMesh, Env, ProcessGroup, ProcessGroupOptions, Store, Transport,
    device_of_rank, init_process_group,
};
pub(crate) use group::{Standing, digest, expect_no_member};
pub use join::{JoinConfig, JoinOptions, Joinable, Joinables, join};
pub use spawn::spawn;
