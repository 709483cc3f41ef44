//! The command line, with codertimo's flags where he has them.
//!
//! | file | what it holds |
//! |---|---|
//! | `method` | [`MethodArgs`]: how devices share a batch |
//! | `text` | [`TextArgs`]: what to learn from, and [`VocabArgs`]: the subcommand that builds a vocabulary |
//! | `train` | [`TrainArgs`]: the training |

pub mod method;
pub mod text;
mod train;

use crate::exhibits::compare::CompareArgs;
use clap::{Parser, Subcommand};

pub use method::{Method, MethodArgs};
pub use text::{Utf8, VocabArgs};
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
