//! Every position is worked on alone.

use super::ModelOptions;
use super::gelu::gelu;
use tch::Tensor;
use tch::nn::{Linear, Module, Path};
use tch_parallel::nn::{LinearOptions, linear};

/// codertimo's `PositionwiseFeedForward`: two layers, the first four times as wide as the vectors.
#[derive(Debug)]
pub struct FeedForward {
    w_1: Linear,
    w_2: Linear,
    dropout: f64,
}

impl FeedForward {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        let (narrow, wide) = (options.hidden, 4 * options.hidden);
        Self {
            w_1: linear(path / "w_1", narrow, wide, LinearOptions::default()),
            w_2: linear(path / "w_2", wide, narrow, LinearOptions::default()),
            dropout: options.dropout,
        }
    }

    /// `[batch, seq_len, hidden]` to the same.
    pub fn forward_t(&self, x: &Tensor, train: bool) -> Tensor {
        self.w_2.forward(&gelu(&self.w_1.forward(x)).dropout(self.dropout, train))
    }
}
