//! A parameter server that nobody waits for: workers fetch θ and push gradients whenever they like.
//!
//! | file | what it holds |
//! |---|---|
//! | `shard` | a part of θ, and all that happens to it |
//! | `roster` | the workers, and how far each of them is |
//! | `rule` | what an update does to θ |
//! | `gate` | how far a worker may run ahead |
//! | `budget` | how many batches are left, and who does them |
//! | `histogram` | how stale the gradients were |
//! | `protocol` | what workers and servers say to each other |
//! | `connection` | how they find each other; the worker's side |
//! | `desk` | the server's side: a thread for each worker |

mod budget;
mod connection;
mod desk;
mod gate;
mod histogram;
mod protocol;
mod roster;
mod rule;
mod shard;

pub use budget::Budget;
pub use connection::{Shards, part};
pub use desk::Desk;
pub use gate::Gate;
pub use rule::Rule;
pub use shard::Shard;
