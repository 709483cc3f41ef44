//! Models larger than a device: every rank holds a shard of each parameter, and gathers the whole ones
//! of a block only while it is used. Uses `collectives`, `group` and `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `fully_shard` | [`FullyShard`], which shards a model while it is built, and its options |
//! | `module` | [`FsdpModule`], a block whose parameters are whole only while it is used |
//! | `unit` | what happens to a block's parameters, from one pass to the next |
//! | `schedule` | what the units of a model know of each other during a step |
//! | `parameter` | one parameter, whole or as shards |
//! | `shards` | which tensors are shards |

mod fully_shard;
mod module;
mod parameter;
mod schedule;
pub(crate) mod shards;
mod unit;

pub use fully_shard::{FullyShard, FullyShardOptions, MixedPrecisionPolicy};
pub use module::FsdpModule;
