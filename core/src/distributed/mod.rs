//! Several processes that train one model: `torch.distributed`.
//!
//! - [`mod@env`]: this process's place in the job, as launchers describe it.
//! - [`init`] holds [`init_process_group`].
//! - [`device`]: on which device a rank trains, and who moves its tensors.
//! - [`process_group`]: the collectives.
//! - [`pending`]: an exchange in progress, whose result must be waited for.
//! - [`ddp`]: [`DistributedDataParallel`], which averages gradients while backward runs;
//!   [`ddp_options`] and [`no_sync`] belong to it.
//! - [`apex`]: the same as NVIDIA Apex does it.
//! - [`hooks`]: other ways of exchanging gradients, compressed for instance.
//! - [`join`]: training in which ranks make different numbers of steps.
//! - [`logging`]: what DistributedDataParallel measured of itself.
//! - [`metrics`]: sums and counts over all ranks.
//! - [`store`]: keys and values that all processes of the job see; groups of some of them.
//!
//! Private: `rendezvous` (how ranks meet), `agreement` (how all learn what one has noticed),
//! `same_model` (whether they have built the same model), `post_mortem` (who is to blame when an
//! exchange fails), `process` (whether it still runs).

mod agreement;
pub mod apex;
pub mod ddp;
pub mod ddp_options;
pub mod device;
pub mod env;
pub mod hooks;
pub mod init;
pub mod join;
pub mod logging;
pub mod metrics;
pub mod no_sync;
pub mod pending;
mod post_mortem;
mod process;
pub mod process_group;
mod rendezvous;
mod same_model;
pub mod store;

pub use apex::{ApexDistributedDataParallel, ApexOptions};
pub use c10d_sys::ReduceOp;
pub use ddp::DistributedDataParallel;
pub use ddp_options::DdpOptions;
pub use device::{Backend, DeviceChoice, device_of_rank};
pub use env::Env;
pub use init::{ProcessGroupOptions, init_process_group};
pub use join::JoinOptions;
pub use logging::DdpLoggingData;
pub use metrics::AvgMetric;
pub use no_sync::NoSync;
pub use pending::Pending;
pub use process_group::ProcessGroup;
pub use store::Store;
