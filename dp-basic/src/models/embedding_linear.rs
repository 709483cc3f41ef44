//! The model of the thread "How pytorch's parallel method and distributed method works?", in a form
//! that runs: its layers are made in `__init__` there by arguments that `nn.Module` does not take.

use tch::Tensor;
use tch::nn::{self, Embedding, Linear, Module, Path};
use tch_parallel::nn::{LinearOptions, linear};

/// `Embedding(1000, 10)`, then `Linear(10, 10)`, which the thread calls `rnn`: 10,110 parameters.
#[derive(Debug)]
pub struct EmbeddingLinear {
    /// A row of ten numbers for each of a thousand tokens.
    pub embedding: Embedding,
    rnn: Linear,
}

impl EmbeddingLinear {
    /// Tokens that have a row.
    pub const TOKENS: i64 = 1000;
    /// Numbers in a row of the table, and in one of the output.
    pub const WIDTH: i64 = 10;

    pub fn new(path: &Path<'_>) -> Self {
        let (tokens, width) = (Self::TOKENS, Self::WIDTH);
        EmbeddingLinear {
            embedding: nn::embedding(path / "embedding", tokens, width, Default::default()),
            rnn: linear(path / "rnn", width, width, LinearOptions::default()),
        }
    }
}

// ANCHOR: forward
impl Module for EmbeddingLinear {
    /// Tokens `[batch]` to numbers `[batch, 10]`.
    fn forward(&self, tokens: &Tensor) -> Tensor {
        self.rnn.forward(&self.embedding.forward(tokens))
    }
}
// ANCHOR_END: forward
