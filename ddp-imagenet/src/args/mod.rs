//! The command line: the flags of ImageNet's main.py, and more.
//!
//! | file | what it holds |
//! |---|---|
//! | `data` | which images, and how they become batches |
//! | `model` | which network |
//! | `recipe` | how it is trained: optimizer, schedule, precision |
//! | `train` | [`TrainArgs`]: all of it, and where results go |

mod data;
mod model;
mod recipe;
mod train;

use clap::Parser;

pub use data::{DataArgs, Images};
pub use model::ModelArgs;
pub use recipe::RecipeArgs;
pub use train::TrainArgs;

/// Trains an image classifier on all ranks of a job, as PyTorch's ImageNet example does.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(version, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    pub train: TrainArgs,
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
