//! The embedding and a stack of blocks.

use super::ModelOptions;
use super::embedding::BertEmbedding;
use super::transformer_block::TransformerBlock;
use tch::Tensor;
use tch::nn::Path;

/// codertimo's `BERT`. There is no normalisation behind the last block.
#[derive(Debug)]
pub struct Bert {
    embedding: BertEmbedding,
    transformer_blocks: Vec<TransformerBlock>,
}

impl Bert {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        let blocks = path / "transformer_blocks";
        Self {
            embedding: BertEmbedding::new(&(path / "embedding"), options),
            transformer_blocks: (0..options.layers)
                .map(|number| TransformerBlock::new(&(&blocks / number), options))
                .collect(),
        }
    }

    /// Tokens and segments `[batch, seq_len]` to vectors `[batch, seq_len, hidden]`.
    pub fn forward_t(&self, tokens: &Tensor, segments: &Tensor, train: bool) -> Tensor {
        // Nobody looks at padding, which is token 0. One row of the mask for every position.
        let mask = tokens.gt(0).unsqueeze(1).repeat([1, tokens.size()[1], 1]).unsqueeze(1);
        let x = self.embedding.forward_t(tokens, segments, train);
        self.transformer_blocks.iter().fold(x, |x, block| block.forward_t(&x, &mask, train))
    }
}
