//! An attention and a feed-forward network.

use super::ModelOptions;
use super::attention::Attention;
use super::feed_forward::FeedForward;
use super::sublayer::Sublayer;
use tch::Tensor;
use tch::nn::Path;

/// codertimo's `TransformerBlock`.
#[derive(Debug)]
pub struct TransformerBlock {
    attention: Attention,
    feed_forward: FeedForward,
    input_sublayer: Sublayer,
    output_sublayer: Sublayer,
    dropout: f64,
}

impl TransformerBlock {
    pub fn new(path: &Path<'_>, options: &ModelOptions) -> Self {
        Self {
            attention: Attention::new(&(path / "attention"), options),
            feed_forward: FeedForward::new(&(path / "feed_forward"), options),
            input_sublayer: Sublayer::new(&(path / "input_sublayer"), options),
            output_sublayer: Sublayer::new(&(path / "output_sublayer"), options),
            dropout: options.dropout,
        }
    }

    /// `[batch, seq_len, hidden]` to the same; `mask` as in [`Attention::forward_t`].
    pub fn forward_t(&self, x: &Tensor, mask: &Tensor, train: bool) -> Tensor {
        let attention = |x: &Tensor| self.attention.forward_t(x, mask, train);
        let feed_forward = |x: &Tensor| self.feed_forward.forward_t(x, train);
        let x = self.input_sublayer.forward_t(x, attention, train);
        let x = self.output_sublayer.forward_t(&x, feed_forward, train);
        x.dropout(self.dropout, train)
    }
}
