//! What theory says about the article's two guesses, on a quadratic function whose rate is known: that
//! stale gradients are "similar to momentum", and that with bounded gradients they converge.
//!
//! | file | what it holds |
//! |---|---|
//! | `quadratic.jinja` | the explanations and tables, which call the functions of the other files |
//! | `workers` | workers that lower one number, and the queue that says who is next |
//! | `momentum` | the momentum of the mean over many runs |
//! | `threads` | the same with threads that really wait |
//! | `divergence` | from which learning rate on there is divergence |
//! | `ssp` | the regret with a bound on the staleness |

mod divergence;
mod momentum;
mod ssp;
mod threads;
mod workers;

use anyhow::{Result, ensure};
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template::{self, found};
use minijinja::{context, value::Serde};
use momentum::Trajectory;
use ssp::View;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  async-update quadratic                           momentum, divergence and regret
  async-update quadratic --workers 2,16 --plot .   and momentum.svg")]
pub struct Args {
    /// Numbers of workers to simulate.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
          value_parser = clap::value_parser!(u16).range(2..=64))]
    workers: Vec<u16>,
    #[command(flatten)]
    plot: PlotArgs,
}

const PLOT: &str = "momentum.svg";

pub fn run(args: &Args) -> Result<()> {
    let workers: Vec<_> = args.workers.iter().copied().map(usize::from).collect();
    ensure!(
        workers.len() <= 4 || args.plot.directory.is_none(),
        "--workers has {} numbers, but must have at most 4 with --plot: each has two curves, and there are nine colours",
        workers.len()
    );
    args.plot.check(&[PLOT])?;
    // Until the mean has passed the minimum and come back.
    let updates = |workers: usize| 5 * workers.max(8);
    let simulate = |&workers: &usize| (workers, momentum::simulated(workers, updates(workers)));
    let simulated: Vec<_> = workers.iter().map(simulate).collect();
    args.plot.save(PLOT, || picture(&simulated))?;

    let mut text = template::environment()?;
    text.add_function("theory", momentum::theory);
    text.add_function("really_run", move |workers| {
        Serde(momentum::fit(&threads::really_run(workers, updates(workers))))
    });
    text.add_function("theory_in_turn", divergence::theory_in_turn);
    text.add_function("measured_in_turn", divergence::measured_in_turn);
    text.add_function("in_turn", |staleness, rate| Serde(divergence::in_turn(staleness, rate)));
    text.add_function("theory_mean_square", divergence::theory_mean_square);
    text.add_function("measured_single", divergence::measured_single);
    text.add_function("ssp", |staleness, view: Serde<View>| {
        found(ssp::run(staleness, view.0).map(Serde))
    });
    text.add_function("bound", ssp::bound);
    let fitted = simulated.iter().map(|(workers, groups)| (workers, momentum::fit(groups)));
    let holes = context! {
        RATE => momentum::RATE,
        WORKERS => ssp::WORKERS,
        UPDATES => ssp::UPDATES,
        simulated => Serde(fitted.collect::<Vec<_>>()),
    };
    Ok(template::print(&text, include_str!("quadratic.jinja"), holes)?)
}

/// For each number of workers the mean way of w, and that under explicit momentum 1 - 1/M.
fn picture(simulated: &[(usize, Vec<Trajectory>)]) -> tch_parallel::Result<String> {
    let series = simulated.iter().flat_map(|(workers, groups)| {
        let measured = momentum::mean(groups);
        let theory = momentum::explicit(*workers, measured.len() - 1);
        let momentum = 1.0 - 1.0 / *workers as f64;
        [
            (format!("{workers} workers, no momentum"), measured),
            (format!("1 worker, momentum {momentum}"), theory),
        ]
        .map(|(name, w)| Series { name, points: (0..).map(f64::from).zip(w).collect() })
    });
    let title = "Asynchronous updates, in the mean";
    plot::lines(&Lines::new(title, ["updates", "w"], Scale::Linear, series.collect()))
}
