//! The command line, with codertimo's flags where he has them.
//!
//! | file | what it holds |
//! |---|---|
//! | `text` | what to learn from: the corpus and its vocabulary; [`VocabArgs`]: the subcommand vocab |
//! | `model` | how large the model is |
//! | `method` | how devices share a batch |
//! | `train` | [`TrainArgs`]: the training |

mod method;
mod model;
mod text;
mod train;

use crate::exhibits::compare::CompareArgs;
use clap::{Parser, Subcommand};

pub use method::{Method, MethodArgs};
pub use model::ModelArgs;
pub use text::{TextArgs, VocabArgs};
pub use train::TrainArgs;

/// Trains codertimo's BERT on pairs of sentences, on one device or several.
///
/// By default it makes 50 steps, which takes less than a minute on two cores.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  dp-custom-criterion                                            BERT on one device
  dp-custom-criterion --method data-parallel --devices cpu:2     batches divided, loss on the first device
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
