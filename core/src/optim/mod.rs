//! Optimizers with PyTorch's order of operations, and a state that can be saved.

mod sgd;

pub use sgd::{Sgd, SgdOptions};
