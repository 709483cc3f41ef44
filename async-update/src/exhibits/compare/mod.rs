//! All methods side by side, with and without a slow worker.
//!
//! | file | what it holds |
//! |---|---|
//! | `runs` | a training by each method, and what its metrics say |
//! | `charts` | losses, updates and staleness as SVG files |

mod charts;
mod runs;

use crate::args::{count, positive};
use anyhow::Result;
use clap::value_parser;
use report::comparison::Comparison;
use report::{Column, table};
use runs::{METHODS, Measured};
use std::path::PathBuf;

/// Train with every method, with equal workers and with a slow one, and compare the results.
///
/// Every training runs in its own processes; no launcher is needed.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  async-update compare                            four workers; one of them five times slower
  async-update compare --workers 2 --plot plots   and losses, updates and staleness as charts"
)]
pub struct Args {
    /// Number of processes that compute gradients; methods with a server have one more.
    // Each of them loads libtorch.
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(2..=64))]
    workers: u32,
    /// Minimum time for a gradient in milliseconds, so that workers do not compete for processors.
    // The slow worker takes a multiple of it, so 0 would not make it slow.
    #[arg(long, value_name = "MS", default_value_t = 10, value_parser = value_parser!(u32).range(1..=60_000))]
    step_time: u32,
    /// Slow the slow worker down by this factor.
    // With the longest step time that is 16 hours, which fits into 32 bits of milliseconds.
    #[arg(long, value_name = "FACTOR", default_value_t = 5, value_parser = value_parser!(u32).range(2..=1000))]
    slowdown: u32,
    /// Passes over the training set, shared by all workers.
    #[arg(long, default_value_t = 3, value_parser = count())]
    epochs: usize,
    /// Learning rate of all methods.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = positive)]
    lr: f64,
    /// Draw losses, updates and staleness as charts in this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Time limit of each training in seconds.
    // Clocks must be able to represent the deadline.
    #[arg(long, default_value_t = 600, value_parser = value_parser!(u32).range(1..))]
    timeout: u32,
}

/// Trains with every method, first with equal workers and then with a slow one, and prints what
/// came of it.
pub fn run(args: &Args) -> Result<()> {
    let comparison = Comparison::new(args.timeout.into())?;
    if let Some(directory) = &args.plot {
        charts::check_destination(directory)?;
    }
    let all = |slow| -> Result<Vec<_>> {
        METHODS.iter().map(|method| runs::run(args, &comparison, method, slow)).collect()
    };
    let (equal, slow) = (all(false)?, all(true)?);
    println!("{} equal workers, {} ms a gradient\n", args.workers, args.step_time);
    print!("{}", table_of(&equal));
    println!("\none of the {} workers {} times slower\n", args.workers, args.slowdown);
    print!("{}", table_of(&slow));
    if let Some(directory) = &args.plot {
        charts::save(directory, &equal, &slow)?;
    }
    Ok(())
}

/// What each method did in a second, and what it learnt.
fn table_of(measured: &[Measured]) -> String {
    let columns = ["s", "updates/s", "batches/s", "staleness", "at most", "loss", "accuracy"]
        .map(Column::Right);
    let row = |Measured { method, outcome, staleness, .. }: &Measured| {
        let mean = staleness.iter().sum::<usize>() as f64 / staleness.len().max(1) as f64;
        vec![
            method.flags.into(),
            format!("{:.2}", outcome.seconds),
            format!("{:.0}", outcome.updates_per_second()),
            format!("{:.0}", outcome.batches_per_second()),
            format!("{mean:.1}"),
            staleness.iter().max().unwrap_or(&0).to_string(),
            format!("{:.4}", outcome.loss),
            format!("{:.1} %", 100.0 * outcome.accuracy),
        ]
    };
    let columns = [&[Column::Left("method")], &columns[..]].concat();
    table(&columns, &measured.iter().map(row).collect::<Vec<_>>())
}
