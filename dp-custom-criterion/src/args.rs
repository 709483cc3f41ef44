//! The command line, with codertimo's flags where he has them.

use crate::data::{Corpus, Vocab, VocabOptions, book_corpus};
use crate::model::{MAX_LEN, ModelOptions};
use crate::schedule::WarmUp;
use clap::{Parser, Subcommand, value_parser};
use std::path::PathBuf;
use tch_parallel::data::DataLoaderOptions;
use tch_parallel::optim::AdamOptions;
use tch_parallel::{Error, Result};

/// Trains codertimo's BERT on pairs of sentences.
///
/// Without any flag it takes 50 steps, less than a minute on two cores.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(version, args_override_self = true, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Vocab(VocabArgs),
}

/// Number the words of a corpus, and keep that in a file.
#[derive(Debug, clap::Args)]
pub struct VocabArgs {
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// Where to put the vocabulary.
    #[arg(short, long)]
    pub output: PathBuf,
    /// The most frequent words only, so many; by default all.
    #[arg(short, long)]
    pub size: Option<usize>,
    /// Only words that occur at least so often.
    #[arg(short, long, default_value_t = 1)]
    pub min_freq: usize,
}

#[derive(Debug, clap::Args)]
pub struct CorpusArgs {
    /// A text: two sentences a line, split by a tab; by default this project's book.
    #[arg(short, long)]
    corpus: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct TrainArgs {
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// A vocabulary made by the subcommand vocab; by default that of the corpus.
    #[arg(short, long)]
    vocab: Option<PathBuf>,
    /// Where to put the weights after each epoch; by default they are not kept.
    #[arg(short, long)]
    pub output: Option<PathBuf>,

    /// The length of a position's vector.
    #[arg(long, default_value_t = 256)]
    hidden: i64,
    /// Transformer blocks on top of each other.
    #[arg(short, long, default_value_t = 8)]
    layers: i64,
    /// Attentions side by side in each block.
    #[arg(short, long, default_value_t = 8)]
    attn_heads: i64,
    /// Tokens in a pair of sentences: longer ones are cut off, shorter ones filled up.
    #[arg(short, long, default_value_t = 20, value_parser = value_parser!(i64).range(4..=MAX_LEN))]
    seq_len: i64,
    /// Tokens that the model knows, if more than the vocabulary has: its output grows with them.
    #[arg(long)]
    vocab_size: Option<i64>,
    /// The share of values that is set to zero in training.
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,

    /// Pairs in a batch. The last batch of an epoch is left out if it is smaller.
    #[arg(short, long, default_value_t = 64, value_parser = value_parser!(u64).range(1..))]
    batch_size: u64,
    /// How often to go through the corpus.
    #[arg(short, long, default_value_t = 10)]
    pub epochs: u64,
    /// Stop after so many steps, even amid an epoch.
    #[arg(long, value_parser = value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Threads that make batches ahead; 0 makes them in the training loop.
    #[arg(short, long, default_value_t = 0)]
    workers: usize,
    /// Determines weights, dropout and masking.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// How strongly weights are drawn to zero.
    #[arg(long, default_value_t = 0.01)]
    adam_weight_decay: f64,
    /// How much Adam keeps of the mean of past gradients.
    #[arg(long, default_value_t = 0.9)]
    adam_beta1: f64,
    /// How much Adam keeps of the mean of their squares.
    #[arg(long, default_value_t = 0.999)]
    adam_beta2: f64,
    /// The step at which the learning rate is highest; a short run learns more with 100.
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    warmup: u64,

    /// Steps between two lines of output.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..))]
    pub log_freq: u64,
    /// A directory for the loss of every step, as JSON lines.
    #[arg(long)]
    pub metrics: Option<PathBuf>,
}

impl CorpusArgs {
    pub fn load(&self) -> Result<Corpus> {
        match &self.corpus {
            Some(path) => Corpus::load(path),
            None => Ok(book_corpus()),
        }
    }
}

impl VocabArgs {
    pub fn options(&self) -> VocabOptions {
        VocabOptions { size: self.size, min_freq: self.min_freq }
    }
}

impl TrainArgs {
    pub fn vocab(&self, corpus: &Corpus) -> Result<Vocab> {
        match &self.vocab {
            Some(path) => Vocab::load(path),
            None => Ok(Vocab::build(corpus, VocabOptions::default())),
        }
    }

    /// The model that knows every token of `vocab`.
    pub fn model(&self, vocab: &Vocab) -> Result<ModelOptions> {
        let tokens = vocab.len() as i64;
        let vocab_size = self.vocab_size.unwrap_or(tokens);
        if vocab_size < tokens {
            return Err(Error::Argument {
                what: "--vocab-size".into(),
                found: vocab_size.to_string(),
                expected: format!(
                    "at least {tokens}, the tokens of the vocabulary: the model has nothing for a \
                     token beyond its own"
                ),
            });
        }
        let options = ModelOptions {
            vocab_size,
            hidden: self.hidden,
            layers: self.layers,
            attn_heads: self.attn_heads,
            dropout: self.dropout,
        };
        options.check()?;
        Ok(options)
    }

    pub fn seq_len(&self) -> usize {
        self.seq_len as usize
    }

    /// # Errors
    /// If `pairs`, the size of the corpus, does not fill a batch.
    pub fn loader(&self, pairs: usize) -> Result<DataLoaderOptions> {
        let batch_size = self.batch_size as usize;
        if batch_size > pairs {
            return Err(Error::Argument {
                what: "--batch-size".into(),
                found: batch_size.to_string(),
                expected: format!("at most {pairs}, the pairs of the corpus"),
            });
        }
        Ok(DataLoaderOptions {
            batch_size,
            num_workers: self.workers,
            // A last batch of a few pairs may hold none that counts, and has no loss then.
            drop_last: true,
            ..Default::default()
        })
    }

    pub fn adam(&self) -> AdamOptions {
        AdamOptions {
            betas: (self.adam_beta1, self.adam_beta2),
            weight_decay: self.adam_weight_decay,
            ..Default::default()
        }
    }

    pub fn schedule(&self) -> WarmUp {
        WarmUp { hidden: self.hidden, steps: self.warmup }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn train(flags: &[&str]) -> TrainArgs {
        Args::try_parse_from(["dp-custom-criterion"].iter().chain(flags)).unwrap().train
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_vocabulary_of_more_tokens_than_the_model_knows_is_refused() {
        let vocab = Vocab::build(&book_corpus(), VocabOptions::default());
        let tokens = vocab.len();
        let larger = train(&["--vocab-size", "30522"]).model(&vocab).unwrap();
        assert_eq!(larger.vocab_size, 30_522);
        assert_eq!(train(&[]).model(&vocab).unwrap().vocab_size, tokens as i64);
        let error = train(&["--vocab-size", "100"]).model(&vocab).unwrap_err().to_string();
        let expected = format!("--vocab-size is 100, but must be at least {tokens}, the tokens");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn a_corpus_that_fills_no_batch_is_refused() {
        let error = train(&["-b", "8"]).loader(7).unwrap_err().to_string();
        assert_eq!(error, "--batch-size is 8, but must be at most 7, the pairs of the corpus");
    }
}
