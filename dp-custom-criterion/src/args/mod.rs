//! The command line, with codertimo's flags where he has them.
//!
//! | file | what it holds |
//! |---|---|
//! | this one | the subcommands, and [`TextArgs`]: what to learn from |
//! | `method` | [`MethodArgs`]: how devices share a batch |
//! | `train` | [`TrainArgs`]: the training |

mod method;
mod train;

use crate::data::{Corpus, Vocab, VocabOptions};
use crate::exhibits::compare::CompareArgs;
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::str::FromStr;

pub use method::{Method, MethodArgs};
pub use train::TrainArgs;

/// Trains codertimo's BERT on pairs of sentences, on one device or several.
///
/// By default it makes 50 steps, which takes less than a minute on two cores.
#[derive(Debug, Parser)]
// As in argparse, the last of repeated flags counts.
#[command(
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  dp-custom-criterion                                            BERT on one device
  dp-custom-criterion --method data-parallel --devices 2xcpu     batches divided, loss on the first device
  dp-custom-criterion --method custom-criterion --devices 2xcpu  the loss on every device as well
  dp-custom-criterion compare                                    all methods: bytes and time of each device"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Vocab(VocabArgs),
    Compare(Box<CompareArgs>),
}

/// Build the vocabulary of a corpus and save it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-custom-criterion vocab --corpus corpus.txt --output vocab.txt
  dp-custom-criterion vocab --output vocab.txt --size 4096   for this project's book")]
pub struct VocabArgs {
    #[command(flatten)]
    pub corpus: CorpusArgs,
    /// File to write the vocabulary to.
    #[arg(short, long)]
    pub output: PathBuf,
    #[command(flatten)]
    pub options: VocabOptions,
    /// Encoding of the corpus, which must be UTF-8.
    #[arg(short, long, value_name = "NAME", default_value = "utf-8")]
    pub encoding: Utf8,
}

/// The encoding of every corpus.
#[derive(Debug, Clone, Copy)]
pub struct Utf8;

impl FromStr for Utf8 {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name.to_lowercase().as_str() {
            "utf-8" | "utf8" => Ok(Utf8),
            _ => Err(format!("a corpus is in UTF-8; convert it with iconv -f {name} -t utf-8")),
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct CorpusArgs {
    /// Corpus: two sentences per line, separated by a tab [default: this project's book].
    #[arg(short, long)]
    corpus: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct TextArgs {
    #[command(flatten)]
    corpus: CorpusArgs,
    /// Vocabulary written by the subcommand vocab [default: that of the corpus].
    #[arg(short, long)]
    vocab: Option<PathBuf>,
}

impl CorpusArgs {
    pub fn load(&self) -> Result<Corpus> {
        self.corpus.as_deref().map_or_else(Corpus::book, Corpus::load)
    }
}

impl TextArgs {
    pub fn load(&self) -> Result<(Corpus, Vocab)> {
        let corpus = self.corpus.load()?;
        let vocab = match &self.vocab {
            Some(path) => Vocab::load(path)?,
            None => Vocab::build(&corpus, VocabOptions::default()),
        };
        Ok((corpus, vocab))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
