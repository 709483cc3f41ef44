//! What a training has come to, in a file: safetensors, written atomically, by rank 0 alone.
//!
//! - [`save`], [`load`]: the weights, for whoever uses the model.
//! - [`Training`]: all that a training depends on, to go on with it as if it had not been interrupted.
//!
//! The format holds names, shapes, numbers and text, so loading a file runs no code. Python reads
//! it with `safetensors.torch`.

mod destination;
mod file;
mod random;
mod training;
mod weights;

pub use destination::check_destination;
pub use random::Generators;
pub use training::{Resumed, Training};
pub use weights::{load, save};
