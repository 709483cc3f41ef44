//! How large the model is.

use anyhow::{Result, ensure};
use clap::value_parser;
use tch_parallel::Error;

/// The length of the table of positions: no sequence may be longer.
pub const MAX_LEN: i64 = 512;

/// codertimo's arguments of `BERT` and of its data set.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct ModelOptions {
    /// Hidden size: the length of a position's vector.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(i64).range(1..))]
    pub hidden: i64,
    /// Number of transformer blocks.
    #[arg(short, long, default_value_t = 8, value_parser = value_parser!(i64).range(1..))]
    pub layers: i64,
    /// Attention heads of each block.
    #[arg(short, long, default_value_t = 8, value_parser = value_parser!(i64).range(1..))]
    pub attn_heads: i64,
    /// Tokens per pair of sentences: longer pairs are truncated, shorter ones padded.
    #[arg(short, long, default_value_t = 20, value_parser = value_parser!(i64).range(4..=MAX_LEN))]
    pub seq_len: i64,
    /// Tokens that the model knows, if more than the vocabulary has; its output grows with them.
    #[arg(long)]
    pub vocab_size: Option<i64>,
    /// Dropout probability.
    #[arg(short, long, default_value_t = 0.1)]
    pub dropout: f64,
    /// Compute the blocks' activations again in the backward pass, instead of keeping them.
    #[arg(long)]
    pub checkpoint_activations: bool,
}

impl ModelOptions {
    /// How many tokens the model knows: at least the `tokens` of the vocabulary. Refuses sizes from
    /// which no model can be built.
    pub fn vocab_size(&self, tokens: usize) -> Result<i64> {
        let Self { hidden, attn_heads, dropout, .. } = *self;
        // The table of positions pairs each sine with a cosine.
        ensure!(hidden % 2 == 0, Error::argument("--hidden", hidden, "an even number"));
        let divisor = format!("a divisor of --hidden, which is {hidden}");
        ensure!(hidden % attn_heads == 0, Error::argument("--attn-heads", attn_heads, divisor));
        let is_share = (0.0..=1.0).contains(&dropout);
        ensure!(is_share, Error::argument("--dropout", dropout, "a share from 0 to 1"));
        let vocab_size = self.vocab_size.unwrap_or(tokens as i64);
        let all = format!(
            "at least {tokens}, the tokens of the vocabulary: the model has nothing for a token \
             beyond its own"
        );
        ensure!(vocab_size >= tokens as i64, Error::argument("--vocab-size", vocab_size, all));
        Ok(vocab_size)
    }
}
