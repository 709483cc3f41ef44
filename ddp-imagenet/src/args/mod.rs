//! The command line: the flags of ImageNet's main.py, and more.
//!
//! | file | what it holds |
//! |---|---|
//! | `data` | which images, and how they become batches |
//! | `recipe` | how it is trained: optimizer, schedule, precision |
//! | `train` | [`TrainArgs`]: all of it, the network, and where results go |

pub mod data;
mod recipe;
mod train;

use crate::exhibits::{compare::CompareArgs, train_cifar};
use clap::{Parser, Subcommand};

pub use data::Images;
pub use train::TrainArgs;

/// Trains an image classifier on all ranks of a job, as PyTorch's ImageNet example does.
#[derive(Debug, Parser)]
// As in argparse, of a flag given twice the last one counts.
#[command(
    version,
    args_override_self = true,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  launch -n 2 ddp-imagenet -a resnet18 /data/imagenet            JPEGs and PNGs in train/CLASS and val/CLASS
  launch -n 2 ddp-imagenet --dataset cifar10 --download -a resnet18 --epochs 30
  launch -n 2 ddp-imagenet -a resnet50 --resume checkpoint.safetensors /data/imagenet
  ddp-imagenet -a resnet18 --evaluate --resume checkpoint.safetensors /data/imagenet
  ddp-imagenet compare                                           PyramidNet by four methods, side by side"
)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Compare(Box<CompareArgs>),
    TrainCifar(Box<train_cifar::Args>),
}
