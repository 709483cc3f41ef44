//! Models larger than a device: each rank holds a shard of every parameter, and gathers a block's
//! whole parameters only while the block is used. Uses `collectives`, `group` and `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `fully_shard` | [`FullyShard`], which shards a model while it is built, and its options |
//! | `reshard_after_forward` | [`ReshardAfterForward`], what a rank keeps between the two passes |
//! | `mesh` | the ranks among which a model is divided, and those that have copies |
//! | `mixed_precision` | [`MixedPrecisionPolicy`], the kinds of numbers it uses |
//! | `module` | [`FsdpModule`], a block whose parameters are whole only while it is used |
//! | `unit` | what happens to a block's parameters during a step |
//! | `gathering` | all ranks' parts of a block's parameters |
//! | `reduction` | the mean of the ranks' gradients |
//! | `schedule` | what the units of a model share: their order, the end of a pass, failures |
//! | `parameter` | one parameter, whole or as shards |
//! | `pool` | memory that whole parameters share |
//! | `shards` | which tensors are shards, and what refuses them |

mod fully_shard;
pub(crate) mod gathering;
pub(crate) mod mesh;
pub(crate) mod mixed_precision;
mod module;
mod parameter;
mod pool;
mod reduction;
mod reshard_after_forward;
mod schedule;
pub(crate) mod shards;
mod unit;

pub use fully_shard::{FullyShard, FullyShardOptions};
pub use mixed_precision::MixedPrecisionPolicy;
pub use module::FsdpModule;
pub use reshard_after_forward::ReshardAfterForward;
pub use shards::full_size;
