//! How ranks average gradients. Uses `collectives`, `group` and `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `ddp`, `ddp_options` | [`DistributedDataParallel`], which averages gradients while backward runs |
//! | `no_sync` | [`NoSync`]: steps without an exchange |
//! | `join` | [`JoinOptions`]: uneven inputs, with different numbers of steps on the ranks |
//! | [`hooks`] | other ways of exchanging gradients, compressed for instance |
//! | `model_averaging` | [`PeriodicModelAverager`]: averages parameters instead of gradients |
//! | `module_tensors`, `same_model` | what ranks share of a model, and whether all have built the same |
//! | `logging` | [`DdpLoggingData`]: DistributedDataParallel's measurements of itself |
//! | `apex` | [`ApexDistributedDataParallel`]: the same as in NVIDIA Apex |

mod apex;
mod ddp;
mod ddp_options;
pub mod hooks;
mod join;
mod logging;
mod model_averaging;
mod module_tensors;
mod no_sync;
mod same_model;

pub use apex::{ApexDistributedDataParallel, ApexOptions};
pub use ddp::DistributedDataParallel;
pub use ddp_options::DdpOptions;
pub use join::JoinOptions;
pub use logging::DdpLoggingData;
pub use model_averaging::PeriodicModelAverager;
pub(crate) use model_averaging::{parts_like, start_mean};
pub use no_sync::NoSync;
