//! The networks: PyramidNet and ResNet, built as their Python originals are.

mod arch;
pub mod pyramidnet;
pub mod resnet;

pub use arch::{Arch, Model};
