//! How ranks average gradients. Uses `join`, `collectives`, `group` and `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `ddp`, `ddp_options` | [`DistributedDataParallel`], which averages gradients while backward runs |
//! | `bucket_order` | the order of gradients in its buckets, which a resumed training goes on with |
//! | `no_sync` | [`NoSync`]: steps without an exchange |
//! | `sync_buffers`, `buffer_comm_hook` | rank 0's buffers on every rank, or what a [`BufferCommHook`] makes of them |
//! | `delayed` | gradients that are averaged apart from the buckets |
//! | `join` | its part of a [join](fn@super::join) |
//! | [`hooks`] | other ways of exchanging gradients, compressed for instance |
//! | `model_averaging` | [`PeriodicModelAverager`]: averages parameters instead of gradients |
//! | `mixed_precision` | [`MixedPrecision`]: parameters and gradients in fewer bits during a pass |
//! | `virtual_ranks`, `tree`, `shares`, `in_step` | the same bits on any number of ranks |
//! | `module_tensors`, `same_model` | what ranks share of a model, and whether all have built the same |
//! | `logging` | [`DdpLoggingData`]: DistributedDataParallel's measurements of itself |
//! | `apex` | [`ApexDistributedDataParallel`]: the same as in NVIDIA Apex |

mod apex;
pub(crate) mod bucket_order;
mod buffer_comm_hook;
mod ddp;
mod ddp_options;
mod delayed;
pub mod hooks;
mod in_step;
mod join;
mod logging;
mod mixed_precision;
mod model_averaging;
mod module_tensors;
mod no_sync;
mod same_model;
mod shares;
mod sync_buffers;
mod tree;
mod virtual_ranks;

pub use apex::{ApexDistributedDataParallel, ApexOptions};
pub use buffer_comm_hook::{BufferCommHook, BufferCommHookLocation};
pub use ddp::DistributedDataParallel;
pub use ddp_options::DdpOptions;
pub use logging::DdpLoggingData;
pub use mixed_precision::MixedPrecision;
pub(crate) use model_averaging::start_mean;
pub use model_averaging::{PeriodicModelAverager, average_parameters};
pub use no_sync::NoSync;
