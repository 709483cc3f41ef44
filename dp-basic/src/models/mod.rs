//! The networks that the subcommands train.

mod classifier;
mod embedding_linear;
mod two_targets;

pub use classifier::{CLASSES, FEATURES, back, classifier, front};
pub use embedding_linear::EmbeddingLinear;
pub use two_targets::TwoTargets;
