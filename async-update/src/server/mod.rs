//! A parameter server for workers that do not wait for each other: they fetch θ and push gradients whenever they like.
//!
//! | file | what it holds |
//! |---|---|
//! | `serve` | the server's process: a thread for each worker |
//! | `shard` | a part of θ, how far each worker is, and which batches are left |
//! | `rule` | what an update does to θ |
//! | `gate` | how far a worker may run ahead |
//! | `protocol` | what workers and servers say to each other |
//! | `connection` | how they find each other; the worker's side |

mod connection;
mod gate;
mod protocol;
mod rule;
mod serve;
mod shard;

pub use connection::Shards;
pub use gate::Gate;
pub use rule::Rule;
pub use serve::{Service, serve};
