//! Steps to an accuracy by batch size: the runs of `train-to` that are recorded, as tables and as pictures.

use crate::task::Dataset;
use crate::train_to::{BASE, Method, Run};
use anyhow::{Context, Result};
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template;
use minijinja::{context, value::Serde};
use report::thousands;
use serde::Serialize;
use std::collections::BTreeMap;

/// Show the steps to an accuracy for batches of 32 to 8,192, from recorded runs of `train-to`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  scaling batches            as tables
  scaling batches --plot .   and as batches_fashion.svg, batches_cifar.svg and batches_noise.svg")]
pub struct Args {
    #[command(flatten)]
    plot: PlotArgs,
}

const PLOTS: [&str; 3] = ["batches_fashion.svg", "batches_cifar.svg", "batches_noise.svg"];
/// Data sets, and how many images an epoch has.
const TASKS: [(Dataset, &str, usize); 2] =
    [(Dataset::FashionMnist, "Fashion-MNIST", 60_000), (Dataset::Cifar10, "CIFAR-10", 50_000)];
const COLUMNS: [&str; 6] = ["constant", "linear", "warm-up", "tuned", "LARS", "LAMB"];

/// Runs with the same batch, optimizer and rate, but different seeds.
type Trial<'a> = Vec<&'a Run>;

/// The median, if more than half of the runs arrived.
fn steps(trial: &Trial<'_>) -> Option<usize> {
    let mut steps: Vec<_> = trial.iter().map(|run| run.steps.unwrap_or(usize::MAX)).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().filter(|&steps| steps < usize::MAX)
}

/// The trials of a batch, one for each column. If there are several rates, the one that takes the fewest steps, among
/// those with the most seeds: most rates were tried with only one.
fn row(runs: &[Run], batch: usize) -> [Trial<'_>; COLUMNS.len()] {
    let best = |batch, method, warms_up, lr: Option<f64>| {
        let mut trials = BTreeMap::<u64, Trial<'_>>::new();
        for run in runs {
            let args = &run.args;
            let chosen = (args.batch_size, args.method, args.warm_up_epochs > 0);
            if chosen == (batch, method, warms_up) && lr.is_none_or(|lr| lr == args.lr) {
                trials.entry(args.lr.to_bits()).or_default().push(run);
            }
        }
        let order = |it: &Trial<'_>| (usize::MAX - it.len(), steps(it).unwrap_or(usize::MAX));
        trials.into_values().min_by_key(order).unwrap_or_default()
    };
    let base = best(BASE, Method::Sgd, false, None).first().map(|run| run.args.lr);
    let linear = base.map(|base| base * batch as f64 / BASE as f64);
    [
        best(batch, Method::Sgd, false, base),
        best(batch, Method::Sgd, false, linear),
        best(batch, Method::Sgd, batch > BASE, linear),
        best(batch, Method::Sgd, false, None),
        best(batch, Method::Lars, false, None),
        best(batch, Method::Lamb, false, None),
    ]
}

/// What is shown of a data set.
#[derive(Serialize)]
struct Task {
    name: &'static str,
    percent: f64,
    epochs: usize,
    /// A batch, what each column says of it, and the rates of those that are tuned.
    rows: Vec<(usize, Vec<String>, Vec<f64>)>,
    /// The steps of the tuned ones are about `least * (1 + critical / batch)`.
    least: f64,
    critical: f64,
    /// The batch of a run, and the gradient noise scale at its end.
    noise: Vec<(usize, f64)>,
    #[serde(skip)]
    curves: Vec<Series>,
    #[serde(skip)]
    noise_curves: Vec<Series>,
}

fn task((dataset, name, images): (Dataset, &'static str, usize)) -> Result<Task> {
    let runs = include_str!("batches.jsonl").lines().map(serde_json::from_str);
    let mut runs = runs.collect::<Result<Vec<Run>, _>>()?;
    runs.retain(|run| run.args.dataset == dataset);
    let first = &runs.first().with_context(|| format!("no run of {name} is recorded"))?.args;
    let epochs = runs.iter().map(|run| run.args.epochs).max().unwrap_or_default();

    let curve = |name: &str| Series { name: name.into(), points: Vec::new() };
    let mut curves: Vec<_> = ["given up"].into_iter().chain(COLUMNS).map(curve).collect();
    let mut rows = Vec::new();
    for batch in (5..14).map(|power| 1 << power) {
        let trials = row(&runs, batch);
        let limit = (images / batch * epochs) as f64;
        curves[0].points.push((batch as f64, limit));
        for (trial, curve) in trials.iter().zip(&mut curves[1..]).filter(|(t, _)| !t.is_empty()) {
            curve.points.push((batch as f64, steps(trial).map_or(limit, |steps| steps as f64)));
        }
        let cell = |trial: &Trial<'_>| match steps(trial) {
            Some(steps) => thousands(steps),
            None if trial.is_empty() => String::new(),
            None if trial.iter().any(|run| run.reached.is_none()) => "diverged".into(),
            None => "never".into(),
        };
        let tuned = trials[3..].iter().filter_map(|trial| trial.first());
        let rates = tuned.map(|run| run.args.lr).collect();
        rows.push((batch, trials.iter().map(cell).collect(), rates));
    }
    curves.retain(|curve| !curve.points.is_empty());

    let noisy = runs.iter().filter(|run| !run.noise_scale.is_empty());
    let noise_curves = noisy.map(|Run { args, noise_scale, .. }| Series {
        name: format!("{name}, batch {}", args.batch_size),
        points: noise_scale.iter().map(|&(steps, samples)| (steps as f64, samples)).collect(),
    });
    let noise_curves = noise_curves.collect();
    let noise =
        runs.iter().filter_map(|run| Some((run.args.batch_size, run.noise_scale.last()?.1)));
    let (noise, (least, critical)) = (noise.collect(), fit(&curves[4].points));
    let percent = 100.0 * first.accuracy;
    Ok(Task { name, percent, epochs, rows, least, critical, noise, curves, noise_curves })
}

// ANCHOR: fit
/// The formula whose ratios to these batches' steps differ least.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let fits = (0..600).map(|power| {
        let critical = 1.02f64.powi(power);
        let ratio = |&(batch, steps): &(f64, f64)| (steps / (1.0 + critical / batch)).ln();
        let mean = points.iter().map(ratio).sum::<f64>() / points.len() as f64;
        let off: f64 = points.iter().map(|point| (ratio(point) - mean).powi(2)).sum();
        (off, mean.exp(), critical)
    });
    fits.min_by(|a, b| a.0.total_cmp(&b.0))
        .map_or((0.0, 0.0), |(_, least, critical)| (least, critical))
}
// ANCHOR_END: fit

/// Prints the tables, and draws the pictures if that is asked for.
pub fn run(args: &Args) -> Result<()> {
    args.plot.check(&PLOTS)?;
    let tasks = TASKS.into_iter().map(task).collect::<Result<Vec<_>>>()?;
    let holes = context! { COLUMNS, tasks => Serde(&tasks) };
    template::print(&template::environment()?, include_str!("batches.jinja"), holes)?;
    let save = |file, title: &str, [x, y]: [&str; 2], series| {
        let (title, x, y) = (title.into(), x.into(), y.into());
        args.plot.save(file, || plot::lines(&Lines { title, x, y, scale: Scale::Log, series }))
    };
    let mut noise = Vec::new();
    for (task, file) in tasks.into_iter().zip(PLOTS) {
        let title = format!("Steps to {:.0} % of {}", task.percent, task.name);
        save(file, &title, ["batch size", "steps"], task.curves)?;
        noise.extend(task.noise_curves);
    }
    Ok(save(PLOTS[2], "Gradient noise scale in training", ["steps", "samples"], noise)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_fit_finds_the_formula_that_made_the_points() {
        let made = |batch: f64| (batch, 70.0 * (1.0 + 400.0 / batch));
        let (least, critical) = super::fit(&[32.0, 256.0, 2048.0].map(made));
        assert!((critical / 400.0 - 1.0).abs() < 0.02, "{critical}");
        assert!((least / 70.0 - 1.0).abs() < 0.02, "{least}");
    }
}
