//! Optimizers with PyTorch's order of operations, and a state that can be saved.

mod adam;
mod optimizer;
#[cfg(test)]
mod problem;
mod sgd;

pub use adam::{Adam, AdamOptions};
pub use sgd::{Sgd, SgdOptions};
