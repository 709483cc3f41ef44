//! How data-parallel training works, step by step, on toy data.
//!
//! | subcommand | what it shows |
//! |---|---|
//! | `sampler` | which rank sees which samples |
//! | `trace` | one step of DataParallel, part by part |
//! | `answers` | the questions of two forum threads, answered by numbers |
//! | `model-parallel` | a model in two parts on two devices |
//! | `speedup` | a step on 1, 2 and 4 devices, timed |
//!
//! `sampler` is the tutorial's own program; the others are [`exhibits`].
//!
//! ```text
//! cargo launch -n 2 dp-basic -- sampler --shuffle --seed 1111
//! cargo run --release -p dp-basic -- trace --devices 4xcpu
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod exhibits;
mod models;
mod sampler;
mod simple_dataset;

use clap::{Parser, Subcommand};
use exhibits::{answers, model_parallel, speedup, trace};
use report::exit;

/// How data-parallel training works, step by step, on toy data.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  launch -n 2 dp-basic sampler --shuffle   which of two ranks sees which numbers
  dp-basic trace                           where every tensor is in a step of DataParallel
  dp-basic answers S2.12                   one question of the forum, answered"
)]
struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    Sampler(sampler::Args),
    Trace(trace::Args),
    Answers(answers::Args),
    ModelParallel(model_parallel::Args),
    Speedup(speedup::Args),
}

fn main() {
    exit(|| match report::parse::<Args>(&[], &[]).step {
        Step::Sampler(args) => sampler::run(&args),
        Step::Trace(args) => trace::run(&args),
        Step::Answers(args) => answers::run(&args),
        Step::ModelParallel(args) => model_parallel::run(&args),
        Step::Speedup(args) => speedup::run(&args),
    })
}
