//! What ranks exchange. Uses `group` and `fault`.
//!
//! | file | what it holds |
//! |---|---|
//! | `reductions` | reductions, broadcast and barriers |
//! | `gathering` | collectives that pass tensors on as they are |
//! | [`functional`] | collectives whose results have gradients |
//! | `point_to_point` | sends and receives, [`P2pOp`] |
//! | `objects` | exchanges of values that are not tensors |
//! | `pending` | [`Pending`]: an exchange in progress, whose result must be waited for |
//! | `arguments` | what collectives refuse, and what they exchange for a tensor |
//! | `host_wait` | waiting on the host for what NCCL does on the GPU |
//! | `failure` | a group in which an exchange has failed |
//! | `agreement` | how all ranks learn what one has noticed |
//! | `average_meter` | [`AverageMeter`]: a mean over the samples of all ranks |

mod agreement;
mod arguments;
mod average_meter;
mod failure;
pub mod functional;
mod gathering;
mod host_wait;
mod objects;
mod pending;
mod point_to_point;
mod reductions;

pub(crate) use arguments::{IN_A_PART, IN_STEP, gather, is_in_step, refuse_in_a_part, sum};
pub use average_meter::AverageMeter;
pub use pending::Pending;
pub use point_to_point::P2pOp;
pub(crate) use reductions::{copy_back, copy_each, flatten, parts_like};
