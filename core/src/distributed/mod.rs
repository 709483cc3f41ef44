//! Several processes that train one model: `torch.distributed`.
//!
//! - [`env`]: this process's place in the job, as launchers describe it.
//! - [`process_group`]: [`init_process_group`] and the collectives.
//! - [`pending`]: an exchange in progress, whose result must be waited for.
//! - [`ddp`]: [`DistributedDataParallel`], which averages gradients while backward runs.
//! - [`logging`]: what DistributedDataParallel measured of itself.
//! - [`metrics`]: sums and counts over all ranks.
//!
//! Private: `rendezvous` (how ranks meet), `agreement` (how all learn what one has noticed),
//! `post_mortem` (who is to blame when an exchange fails).

mod agreement;
pub mod ddp;
pub mod env;
pub mod logging;
pub mod metrics;
pub mod pending;
mod post_mortem;
pub mod process_group;
mod rendezvous;

pub use c10d_sys::ReduceOp;
pub use ddp::{DdpOptions, DistributedDataParallel};
pub use env::Env;
pub use logging::DdpLoggingData;
pub use metrics::AvgMetric;
pub use pending::Pending;
pub use process_group::{
    Backend, DeviceChoice, ProcessGroup, ProcessGroupOptions, init_process_group,
};
