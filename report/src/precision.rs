//! The precision of a training, as a flag.

use clap::ValueEnum;
use tch::Kind;

/// A kind of 16-bit floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// The range of 32-bit floats with 8 bits of precision.
    Bf16,
    /// 11 bits of precision; small gradients vanish unless the loss is scaled.
    Fp16,
}

impl Precision {
    /// The type that [`autocast`](tch_parallel::amp::autocast) takes.
    pub fn kind(self) -> Kind {
        match self {
            Precision::Bf16 => Kind::BFloat16,
            Precision::Fp16 => Kind::Half,
        }
    }
}
