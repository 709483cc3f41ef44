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
use report::{Here, Originals};

pub use method::{Method, MethodArgs};
pub use text::VocabArgs;
pub use train::TrainArgs;

/// Trains codertimo's BERT on pairs of sentences, on one device or several.
///
/// By default it makes 70 steps, which takes less than a minute on two cores.
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

/// The flags of codertimo's `bert` that have no counterpart of the same name.
pub const ORIGINALS: Originals<'_> = &[
    ("-hs", Here::Flag("--hidden")),
    ("-t", Here::Instead(NO_TEST_SET)),
    ("--test-dataset", Here::Instead(NO_TEST_SET)),
    ("--with-cuda", Here::Instead("type --devices cuda:0 for a GPU; without it, it is the CPU")),
    ("--cuda-devices", Here::Instead("type --devices cuda:0,cuda:1 for GPUs 0 and 1")),
    ("--corpus-lines", Here::Instead("leave it out; the lines of --corpus are counted")),
    ("--on-memory", Here::Instead("leave it out; all of --corpus is always in memory")),
    ("--lr", Here::Instead("it has no effect in the original either; type --warmup N")),
];

const NO_TEST_SET: &str = "leave it out; only the loss of --corpus is measured";
