//! What the launcher knows of this machine, for programs that need to agree with it.
//!
//! The launcher itself is the program `launch`.

#![deny(missing_docs)]

mod gpus;

pub use gpus::gpus;
