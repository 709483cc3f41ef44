//! The command line, with codertimo's flags where he has them.
//!
//! | file | what it holds |
//! |---|---|
//! | `text` | what to learn from: the corpus and its vocabulary |
//! | `model` | how large the model is |
//! | `method` | how the batch is shared out among devices |
//! | `train` | [`TrainArgs`]: the training |
//! | `compare` | [`CompareArgs`]: the subcommand that runs every method |

mod compare;
mod method;
mod model;
mod text;
mod train;

use crate::data::VocabOptions;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

pub use compare::CompareArgs;
pub use method::{Method, MethodArgs};
pub use model::ModelArgs;
pub use text::{CorpusArgs, TextArgs};
pub use train::TrainArgs;

/// Trains codertimo's BERT on pairs of sentences, on one device or several.
///
/// Without any flag it takes 50 steps, less than a minute on two cores.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  dp-custom-criterion                                            BERT on one device
  dp-custom-criterion --method data-parallel --devices cpu:2     batches shared out, loss on the first device
  dp-custom-criterion --method custom-criterion --devices cpu:2  the loss on every device as well
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

/// Number the words of a corpus, and keep that in a file.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-custom-criterion vocab --corpus corpus.txt --output vocab.json
  dp-custom-criterion vocab --output vocab.json --size 4096   of this project's book")]
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

impl VocabArgs {
    pub fn options(&self) -> VocabOptions {
        VocabOptions { size: self.size, min_freq: self.min_freq }
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
