//! How large the model is.

use crate::data::Vocab;
use crate::model::{MAX_LEN, ModelOptions};
use clap::value_parser;
use report::refused;
use tch_parallel::Result;

#[derive(Debug, Clone, PartialEq, clap::Args)]
pub struct ModelArgs {
    /// Hidden size: the length of a position's vector.
    #[arg(long, default_value_t = 256, value_parser = value_parser!(i64).range(1..))]
    pub hidden: i64,
    /// Number of transformer blocks.
    #[arg(short, long, default_value_t = 8, value_parser = value_parser!(i64).range(1..))]
    layers: i64,
    /// Attention heads of each block.
    #[arg(short, long, default_value_t = 8, value_parser = value_parser!(i64).range(1..))]
    attn_heads: i64,
    /// Tokens per pair of sentences: longer pairs are truncated, shorter ones padded.
    #[arg(short, long, default_value_t = 20, value_parser = value_parser!(i64).range(4..=MAX_LEN))]
    seq_len: i64,
    /// Tokens that the model knows, if more than the vocabulary has; its output grows with them.
    #[arg(long)]
    vocab_size: Option<i64>,
    /// Dropout probability.
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,
}

impl ModelArgs {
    /// The model that knows every token of `vocab`.
    ///
    /// # Errors
    /// [`Error::Argument`](tch_parallel::Error::Argument) for sizes from which no model can be built.
    pub fn options(&self, vocab: &Vocab) -> Result<ModelOptions> {
        let Self { hidden, layers, attn_heads, dropout, .. } = *self;
        if hidden % 2 != 0 {
            // The table of positions pairs each sine with a cosine.
            return Err(refused("--hidden", hidden, "an even number"));
        }
        if hidden % attn_heads != 0 {
            let expected = format!("a divisor of --hidden, which is {hidden}");
            return Err(refused("--attn-heads", attn_heads, expected));
        }
        if !(0.0..=1.0).contains(&dropout) {
            return Err(refused("--dropout", dropout, "a share from 0 to 1"));
        }
        let tokens = vocab.len() as i64;
        let vocab_size = self.vocab_size.unwrap_or(tokens);
        if vocab_size < tokens {
            let expected = format!(
                "at least {tokens}, the tokens of the vocabulary: the model has nothing for a token \
                 beyond its own"
            );
            return Err(refused("--vocab-size", vocab_size, expected));
        }
        Ok(ModelOptions { vocab_size, hidden, layers, attn_heads, dropout })
    }

    pub fn seq_len(&self) -> usize {
        self.seq_len as usize
    }

    /// The flags that make these arguments, for another process.
    pub fn flags(&self) -> Vec<String> {
        let Self { hidden, layers, attn_heads, seq_len, vocab_size, dropout } = self;
        let vocab_size = vocab_size.map(|size| format!("--vocab-size={size}"));
        [
            format!("--hidden={hidden}"),
            format!("--layers={layers}"),
            format!("--attn-heads={attn_heads}"),
            format!("--seq-len={seq_len}"),
            format!("--dropout={dropout}"),
        ]
        .into_iter()
        .chain(vocab_size)
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{VocabOptions, book_corpus};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        model: ModelArgs,
    }

    fn model(flags: &[&str]) -> ModelArgs {
        Line::try_parse_from(["program"].iter().chain(flags)).unwrap().model
    }

    #[test]
    fn a_vocabulary_of_more_tokens_than_the_model_knows_is_refused() {
        let vocab = Vocab::build(&book_corpus(), VocabOptions::default());
        let tokens = vocab.len();
        let larger = model(&["--vocab-size", "30522"]).options(&vocab).unwrap();
        assert_eq!(larger.vocab_size, 30_522);
        assert_eq!(model(&[]).options(&vocab).unwrap().vocab_size, tokens as i64);
        let error = model(&["--vocab-size", "100"]).options(&vocab).unwrap_err().to_string();
        let expected = format!("--vocab-size is 100, but must be at least {tokens}, the tokens");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn sizes_that_make_no_model_are_refused() {
        let vocab = Vocab::build(&book_corpus(), VocabOptions::default());
        for (flag, expected) in [
            ("--hidden=33", "--hidden is 33, but must be an even number"),
            (
                "--attn-heads=5",
                "--attn-heads is 5, but must be a divisor of --hidden, which is 256",
            ),
            ("--dropout=NaN", "--dropout is NaN, but must be a share from 0 to 1"),
        ] {
            let error = model(&[flag]).options(&vocab).unwrap_err().to_string();
            assert_eq!(error, expected);
        }
        for flag in ["--hidden=0", "--layers=0", "--attn-heads=0"] {
            let error = Line::try_parse_from(["program", flag]).err().unwrap().to_string();
            assert!(error.contains("0 is not in 1.."), "{error}");
        }
    }

    #[test]
    fn flags_for_another_process_make_the_same_arguments() {
        let all = ["--hidden=6", "-l=1", "-a=3", "-s=9", "--dropout=0.25", "--vocab-size=99"];
        for given in [&all[..], &all[..5]] {
            let arguments = model(given);
            let flags = arguments.flags();
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            assert_eq!(model(&flags), arguments);
        }
    }
}
