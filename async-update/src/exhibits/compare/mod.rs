//! All methods side by side, with and without a slow worker.
//!
//! | file | what it holds |
//! |---|---|
//! | `runs` | a training by each method, and what its metrics say |
//! | `compare.jinja` | all trainings in two tables |
//! | `charts` | losses, batches and staleness as SVG files |

mod charts;
mod runs;

use crate::args::rate;
use anyhow::Result;
use charts::CHARTS;
use clap::value_parser;
use exhibit_kit::{comparison::Comparison, plot::PlotArgs, template};
use minijinja::{context, value::Serde};
use runs::METHODS;

/// Train with every method but diloco, with equal workers and with a slow one, and compare the results.
///
/// Every training runs in its own processes; no launcher is needed.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:
  async-update compare                            four workers; one of them five times slower
  async-update compare --workers 2 --plot plots   and losses, batches and staleness as charts"
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
    #[arg(long, default_value_t = 3, value_parser = report::positive())]
    epochs: usize,
    /// Learning rate of all methods.
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true, value_parser = rate)]
    lr: f64,
    #[command(flatten)]
    plot: PlotArgs,
    /// Time limit of each training in seconds.
    // Clocks must be able to represent the deadline.
    #[arg(long, default_value_t = 600, value_parser = value_parser!(u32).range(1..))]
    timeout: u32,
}

pub fn run(args: &Args) -> Result<()> {
    let comparison = Comparison::new(args.timeout.into())?;
    args.plot.check(&CHARTS.map(|(file, _)| file))?;
    let all = |slow| -> Result<Vec<_>> {
        METHODS.into_iter().map(|method| runs::run(args, &comparison, method, slow)).collect()
    };
    let (equal, slow) = (all(false)?, all(true)?);
    let Args { workers, step_time, slowdown, .. } = args;
    let holes =
        context! { workers, step_time, slowdown, equal => Serde(&equal), slow => Serde(&slow) };
    template::print(&template::environment()?, include_str!("compare.jinja"), holes)?;
    for (file, draw) in CHARTS {
        args.plot.save(file, || draw(&equal, &slow))?;
    }
    Ok(())
}
