//! How data-parallel training works, step by step, on toy data.
//!
//! ```text
//! cargo launch -n 2 dp-basic -- sampler --shuffle --seed 1111
//! ```

mod sampler;
mod simple_dataset;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tch_parallel::report::exit_code;

/// How data-parallel training works, step by step, on toy data.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    Sampler(sampler::Args),
}

fn main() -> ExitCode {
    match Args::parse().step {
        Step::Sampler(args) => exit_code(sampler::run(&args)),
    }
}
