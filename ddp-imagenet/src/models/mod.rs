//! The networks: PyramidNet and ResNet, built as their Python originals are, from the blocks of `residual`.

mod arch;
pub mod pyramidnet;
mod residual;
pub mod resnet;

pub use arch::Arch;
