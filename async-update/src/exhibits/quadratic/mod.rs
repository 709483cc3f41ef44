//! What theory says about the article's two guesses, on a quadratic function whose rate is known: that
//! stale gradients are "similar to momentum", and that with bounded gradients they converge.
//!
//! | file | what it holds |
//! |---|---|
//! | `workers` | workers that lower one number, and the queue that says who is next |
//! | `momentum` | the momentum of the mean over many runs |
//! | `threads` | the same with threads that really wait |
//! | `divergence` | from which learning rate on there is divergence |
//! | `ssp` | the regret with a bound on the staleness |
//! | `plot` | the mean over many runs, as a picture |

mod divergence;
mod momentum;
mod plot;
mod ssp;
mod threads;
mod workers;

use crate::exhibits::check_plots;
use anyhow::{Result, ensure};
use divergence::End;
use momentum::{Estimate, Trajectory};
use report::{Column, table, thousands};
use ssp::View;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update quadratic                           momentum, divergence and regret
  async-update quadratic --workers 2,16 --plot .   and momentum.svg")]
pub struct Args {
    /// Numbers of workers to simulate.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: Vec<u16>,
    /// Seed of everything random, except how long threads really sleep.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Draw the momentum as momentum.svg in this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// The file that --plot makes.
const PLOT: &str = "momentum.svg";

/// Staleness bounds of the last table.
const BOUNDS: [usize; 4] = [0, 2, 8, 32];

pub fn run(args: &Args) -> Result<()> {
    let workers: Vec<_> = args.workers.iter().copied().map(usize::from).collect();
    if let Some(directory) = &args.plot {
        ensure!(
            workers.len() <= 4,
            "--workers has {} numbers, but must have at most 4 with --plot: each has two curves, and there are nine colours",
            workers.len()
        );
        check_plots(directory, &[PLOT])?;
    }
    let simulated = print_momentum(&workers, args.seed)?;
    if let Some(directory) = &args.plot {
        plot::draw(&directory.join(PLOT), &simulated)?;
    }
    print_in_turn();
    print_queue(&workers, args.seed);
    print_regret(args.seed)
}

/// Prints the momentum that was found, and gives the trajectories of the queue.
fn print_momentum(workers: &[usize], seed: u64) -> Result<Vec<(usize, Vec<Trajectory>)>> {
    println!(
        "Implicit momentum: f(w) = ½ h w², ηh = {}, M workers with exponential work times.
Fitted to the mean over all runs: w[t+1] - w[t] = momentum · (w[t] - w[t-1]) - step · w[t]
",
        momentum::RATE
    );
    let mut rows = Vec::new();
    let mut simulated = Vec::new();
    for &workers in workers {
        // Until the mean has passed the minimum and come back.
        let updates = 5 * workers.max(8);
        let queue = momentum::simulated(workers, updates, seed);
        rows.push(momentum_row(workers, "queue", momentum::fit(&queue)));
        let threads = threads::really_run(workers, updates, seed)?;
        rows.push(momentum_row(workers, "threads", momentum::fit(&threads)));
        simulated.push((workers, queue));
    }
    let columns = ["M", "run as", "1 - 1/M", "momentum", "±", "difference", "ηh/M", "step", "±"];
    println!("{}", table(&columns.map(Column::Right), &rows));
    Ok(simulated)
}

fn momentum_row(workers: usize, run_as: &str, [momentum, step]: [Estimate; 2]) -> Vec<String> {
    let [theory, theory_step] = momentum::theory(workers);
    let difference = momentum.value - theory;
    let momentum = [theory, momentum.value, momentum.error, difference];
    let numbers = [&momentum[..], &[theory_step, step.value, step.error]].concat();
    let numbers = numbers.iter().map(|number| format!("{number:.4}"));
    [workers.to_string(), run_as.into()].into_iter().chain(numbers).collect()
}

fn print_in_turn() {
    println!(
        "Divergence, M = τ + 1 workers in turn: w[t+1] = w[t] - ηh w[t-τ], stable below 2 sin(π / (2(2τ + 1)))\n"
    );
    let row = |staleness| {
        let theory = divergence::theory_in_turn(staleness);
        let end = |factor: f64| match divergence::in_turn(staleness, factor * theory) {
            End::Converges(updates) => format!("converges ({})", thousands(updates)),
            End::Diverges(updates) => format!("diverges ({})", thousands(updates)),
            End::Neither => "neither".into(),
        };
        let measured = divergence::measured_in_turn(staleness);
        let limits = [theory, measured].map(|limit| format!("{limit:.4}"));
        [&[staleness.to_string()], &limits[..], &[end(0.95), end(1.05)]].concat()
    };
    let columns = ["τ", "theory", "measured", "at 0.95 of it (updates)", "at 1.05 of it (updates)"];
    println!("{}", table(&columns.map(Column::Right), &[0, 1, 3, 7].map(row)));
}

fn print_queue(workers: &[usize], seed: u64) {
    println!(
        "Divergence, M workers in the order of a queue: the greatest stable ηh

The mean of w is stable up to 4M - 2, that of w² (theory, too) not nearly so far: the mean is small
where runs go far away to both sides. A single run is one of those. In the last column the staleness
is the same as in the mean of the queue, but constant.
"
    );
    let row = |&workers: &usize| {
        let limits = [
            divergence::theory_mean(workers),
            divergence::theory_mean_square(workers),
            divergence::measured_single(workers, seed),
            divergence::theory_in_turn(workers - 1),
        ];
        [&[workers.to_string()], &limits.map(|limit| format!("{limit:.3}"))[..]].concat()
    };
    let columns = ["M", "mean of w", "mean of w²", "half of the runs, measured", "in turn"];
    let rows: Vec<_> = workers.iter().map(row).collect();
    println!("{}", table(&columns.map(Column::Right), &rows));
}

fn print_regret(seed: u64) -> Result<()> {
    println!(
        "Regret of an update under SSP: {} workers, one of them 5 times slower, {} updates of
f_t(x) = |<a_t, x> - e_t|, η_t = σ/√t; the bound is 4FL √(2(s+1)P/T)
",
        ssp::WORKERS,
        thousands(ssp::UPDATES)
    );
    let row = |staleness| -> Result<Vec<String>> {
        let newest = ssp::run(staleness, View::Newest, seed)?;
        let oldest = ssp::run(staleness, View::Oldest, seed)?;
        let bound = ssp::bound(staleness);
        let numbers = [newest.per_update, oldest.per_update, bound];
        let lead = newest.lead;
        Ok([&[staleness, lead].map(|n| n.to_string()), &numbers.map(|n| format!("{n:.4}"))[..]]
            .concat())
    };
    let columns = ["s", "greatest lead", "newest seen", "oldest allowed", "bound"];
    let rows = BOUNDS.map(row).into_iter().collect::<Result<Vec<_>>>()?;
    print!("{}", table(&columns.map(Column::Right), &rows));
    Ok(())
}
