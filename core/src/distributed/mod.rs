//! Several processes train one model: `torch.distributed`.
//!
//! | file | what it holds |
//! |---|---|
//! | `env` | [`Env`]: this process's place in the job, as launchers describe it |
//! | `init` | [`init_process_group`]: makes this process a rank |
//! | `device` | [`DeviceChoice`]: a rank's device; [`Backend`]: what moves its tensors |
//! | `process_group` | [`ProcessGroup`]: the ranks of a job |
//! | `collectives` | its reductions, broadcast and barriers |
//! | `gathering` | its collectives that pass tensors on as they are |
//! | `point_to_point` | sends and receives, [`P2pOp`] |
//! | `transport` | [`Transport`]: sockets or shared memory |
//! | `failure` | a group in which an exchange has failed |
//! | `destroy` | how a rank leaves a group |
//! | `new_group` | groups of some ranks |
//! | `objects` | exchanges of values that are not tensors |
//! | `pending` | [`Pending`]: an exchange in progress, whose result must be waited for |
//! | `ddp`, `ddp_options` | [`DistributedDataParallel`], which averages gradients while backward runs |
//! | `no_sync` | [`NoSync`]: steps without an exchange |
//! | `join` | [`JoinOptions`]: uneven inputs, with different numbers of steps on the ranks |
//! | `average_meter` | [`AverageMeter`]: a mean over the samples of all ranks |
//! | [`hooks`] | other ways of exchanging gradients, compressed for instance |
//! | `model_averaging` | [`PeriodicModelAverager`]: averages parameters instead of gradients |
//! | `logging` | [`DdpLoggingData`]: DistributedDataParallel's measurements of itself |
//! | `apex` | [`ApexDistributedDataParallel`]: the same as in NVIDIA Apex |
//! | `record` | [`record`](fn@record): the end of a rank that fails |
//! | `store` | [`Store`]: a job's key-value store |
//!
//! Behind these are `arguments` (what collectives refuse, and what they exchange for a tensor),
//! `gpus` (which GPUs a rank sees), `rendezvous` (how ranks meet), `agreement` (how all ranks learn
//! what one has noticed),
//! `host_wait` and `nccl_watch` (what is different with NCCL when a rank does not come),
//! `module_tensors` (what of a store they share), `same_model` (whether they have built the same
//! model), `members` (which ranks of a group use this library), `post_mortem` (which rank is at
//! fault when an exchange fails), `process` (whether a process still runs) and `open_files` (whether
//! it may open enough of them).

mod agreement;
mod apex;
mod arguments;
mod average_meter;
mod collectives;
mod ddp;
mod ddp_options;
mod destroy;
mod device;
mod env;
mod failure;
mod gathering;
mod gpus;
pub mod hooks;
mod host_wait;
mod init;
mod join;
mod logging;
mod members;
mod model_averaging;
mod module_tensors;
mod nccl_watch;
mod new_group;
mod no_sync;
mod objects;
mod open_files;
mod pending;
mod point_to_point;
mod post_mortem;
mod process;
mod process_group;
mod record;
mod rendezvous;
mod same_model;
mod store;
mod transport;
mod watch;

pub use apex::{ApexDistributedDataParallel, ApexOptions};
pub use average_meter::AverageMeter;
pub use c10d_sys::ReduceOp;
pub use ddp::DistributedDataParallel;
pub use ddp_options::DdpOptions;
pub use device::{Backend, DeviceChoice, device_of_rank};
pub use env::Env;
pub use init::{ProcessGroupOptions, init_process_group};
pub use join::JoinOptions;
pub use logging::DdpLoggingData;
pub use model_averaging::PeriodicModelAverager;
pub use no_sync::NoSync;
pub use pending::Pending;
pub use point_to_point::P2pOp;
pub(crate) use post_mortem::Blame;
pub use process_group::ProcessGroup;
pub use record::record;
pub use store::Store;
pub use transport::Transport;
