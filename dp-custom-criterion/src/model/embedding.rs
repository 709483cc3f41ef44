//! Tokens, positions and segments become vectors.

use super::ModelOptions;
use tch::nn::{Embedding, Module, Path};
use tch::{Device, Kind, Tensor};
use tch_parallel::nn::{EmbeddingOptions, embedding};

/// The length of the table of positions: no sequence may be longer.
pub const MAX_LEN: i64 = 512;

/// 0 for padding, 1 for the first sentence, 2 for the second.
const SEGMENTS: i64 = 3;

/// codertimo's `BERTEmbedding`: the sum of three vectors for each position.
#[derive(Debug)]
pub struct BertEmbedding {
    token: Embedding,
    /// Fixed, `[1, MAX_LEN, hidden]`.
    position: Tensor,
    segment: Embedding,
    dropout: f64,
}

impl BertEmbedding {
    pub fn new(path: &Path<'_>, options: &ModelOptions, vocab_size: i64) -> Self {
        let padded = EmbeddingOptions { padding_idx: Some(0), ..Default::default() };
        let ModelOptions { hidden, dropout, .. } = *options;
        let token = embedding(path / "token", vocab_size, hidden, padded);
        // A variable that is not trained, PyTorch's buffer: so it is saved, and reaches replicas.
        let trainable = false;
        let table = sinusoids(hidden).to_device(path.device());
        let position = (path / "position").add("pe", table, trainable);
        let segment = embedding(path / "segment", SEGMENTS, hidden, padded);
        Self { token, position, segment, dropout }
    }

    /// Tokens and segments `[batch, seq_len]` to vectors `[batch, seq_len, hidden]`.
    pub fn forward_t(&self, tokens: &Tensor, segments: &Tensor, train: bool) -> Tensor {
        let position = self.position.narrow(1, 0, tokens.size()[1]);
        let sum = self.token.forward(tokens) + position + self.segment.forward(segments);
        sum.dropout(self.dropout, train)
    }
}

/// The positions' vectors from "Attention is all you need": sines in the even columns, cosines in
/// the odd ones, of wavelengths that grow from column to column.
fn sinusoids(hidden: i64) -> Tensor {
    let integers = (Kind::Int64, Device::Cpu);
    let position = Tensor::arange(MAX_LEN, integers).to_kind(Kind::Float).unsqueeze(1);
    let even = Tensor::arange_start_step(0, hidden, 2, integers).to_kind(Kind::Float);
    let frequency = (even * -(10000f64.ln() / hidden as f64)).exp();
    let angle = position * frequency;
    // [MAX_LEN, hidden / 2, 2] in memory is sine, cosine, sine, cosine …
    Tensor::stack(&[angle.sin(), angle.cos()], 2).view([1, MAX_LEN, hidden])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_position_is_zeros_and_ones_and_the_second_turns_by_a_radian() {
        let table = sinusoids(4);
        let row = |position| Vec::<f32>::try_from(table.get(0).get(position)).unwrap();
        assert_eq!(row(0), [0.0, 1.0, 0.0, 1.0]);
        let expected = [1f32.sin(), 1f32.cos(), 0.01f32.sin(), 0.01f32.cos()];
        for (found, expected) in row(1).into_iter().zip(expected) {
            // An f32 of this size is known to half of 1.2e-7, twice: the angle and its sine.
            assert!((found - expected).abs() < 1.2e-7, "{found} {expected}");
        }
    }
}
