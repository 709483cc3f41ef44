//! Checkpoints: safetensors files, written atomically, by rank 0 alone.
//!
//! - [`save`], [`load`]: the weights, to use the model elsewhere.
//! - [`Training`]: a whole training, to continue it as if it had not been interrupted.
//! - [`check_destination`], [`replace`]: the files themselves, which may hold anything else as well.
//!
//! The format contains names, shapes, numbers and text, so loading a file runs no code. Python
//! reads it with `safetensors.torch`.

mod bucket_order;
mod destination;
mod file;
mod random;
mod training;
mod weights;

pub use destination::{check_destination, replace};
pub use random::Generators;
pub use training::{Resumed, Training};
pub use weights::{load, save};
