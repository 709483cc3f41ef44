//! How far data-parallel training scales: a model of a step, and what it says.
//!
//! | file | what it holds |
//! |---|---|
//! | `cluster` | what an all-reduce costs within a host and between hosts |
//! | `model` | what a step computes, and in which order its gradients become complete |
//! | `step` | the simulated step |
//! | `published` | efficiencies that others have published, beside the model's |
//! | `curves` | thousands of ranks, and when a method pays |
//! | `batches` | steps to an accuracy by batch size, and the usual remedies |
//! | `train_to` | one training; `batches` shows recorded ones |
//! | `task` | the data sets and networks of `train_to` |
//! | `trust_ratio` | LARS and LAMB |
//! | `noise_scale` | the gradient noise scale |
//! | `measure` | times of this machine, beside the model's |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod batches;
mod cluster;
mod curves;
mod measure;
mod model;
mod noise_scale;
mod published;
mod step;
mod task;
mod train_to;
mod trust_ratio;

use clap::{Parser, Subcommand};
use report::exit;

/// How far data-parallel training scales.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  scaling published             the model beside published efficiencies
  scaling curves --plot .       thousands of ranks, as tables and as scaling.svg
  launch -n 4 scaling measure   a step on this machine
  scaling batches               steps to an accuracy by batch size"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compare the model with published efficiencies.
    #[command(after_help = "Examples:\n  scaling published")]
    Published,
    Curves(curves::Args),
    Measure(measure::Args),
    Batches(batches::Args),
    TrainTo(train_to::Args),
}

fn main() {
    exit(|| match report::parse::<Args>(&[], &[]).command {
        Command::Published => published::run(),
        Command::Curves(args) => curves::run(&args),
        Command::Measure(args) => measure::run(&args),
        Command::Batches(args) => batches::run(&args),
        Command::TrainTo(args) => train_to::run(&args),
    })
}
