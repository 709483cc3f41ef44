//! Layers initialised exactly as PyTorch's are: the same seed gives the same weights.
//!
//! They are tch's own layer types; only the drawing of the initial values differs.

mod embedding;
mod linear;

pub use embedding::{EmbeddingOptions, embedding};
pub use linear::{LinearOptions, linear};
