//! Layers initialised exactly as PyTorch's are: the same seed gives the same weights.
//!
//! They are tch's own layer types; only the drawing of the initial values differs.

mod linear;

pub use linear::{LinearOptions, linear};
