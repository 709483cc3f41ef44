//! What the launcher and the programs that it starts agree on.

#![deny(missing_docs)]

mod gpus;

pub use gpus::gpus;
