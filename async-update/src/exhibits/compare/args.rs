//! The flags of the comparison.

use crate::args::{count, positive};
use clap::value_parser;
use report::multiprocessing::TimeLimit;
use std::path::PathBuf;

/// Trains with every method, with equal workers and with a slow one, and shows what each makes of it.
///
/// Every training runs in processes of its own; no launcher is needed.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  async-update compare                            four workers; one of them five times slower
  async-update compare --workers 2 --plot plots   and losses, updates and staleness as charts"
)]
pub struct CompareArgs {
    /// How many processes compute gradients; methods with a server have one more.
    // Each has libtorch in its memory.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    pub workers: u32,
    /// Milliseconds that a gradient takes at least, so that workers do not wait for a processor.
    // Many times nothing is nothing: without it the slow worker would not be slow.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = value_parser!(u32).range(1..=60_000))]
    pub step_time: u32,
    /// How many times longer the slow worker takes.
    // Times the longest step this is 16 hours, and still a number of 32 bits.
    #[arg(long, value_name = "FACTOR", default_value_t = 5, value_parser = value_parser!(u32).range(2..=1000))]
    pub slowdown: u32,
    /// How often to go through the training set, all workers together.
    #[arg(long, default_value_t = 3, value_parser = count())]
    pub epochs: usize,
    /// The learning rate of all methods.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = positive)]
    pub lr: f64,
    /// Draw losses, updates and staleness as charts in this directory.
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Seconds that a training may take.
    // The moment at which it is over must be one that clocks can tell.
    #[arg(long, default_value_t = 600, value_parser = value_parser!(u32).range(1..))]
    timeout: u32,
}

impl CompareArgs {
    pub fn time_limit(&self) -> TimeLimit {
        TimeLimit { seconds: self.timeout.into(), flag: "--timeout" }
    }
}
