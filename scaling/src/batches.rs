//! Steps to an accuracy by batch size: recorded runs of `train-to`, as tables and as pictures.

use crate::task::Dataset;
use crate::train_to::{BASE, Method, Run};
use anyhow::Result;
use exhibit_kit::plot::{self, Lines, PlotArgs, Scale, Series};
use exhibit_kit::template;
use minijinja::context;
use report::thousands;
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
/// Data sets, how many images an epoch has, and after how many epochs a run was given up.
const TASKS: [(Dataset, &str, usize, usize); 2] = [
    (Dataset::FashionMnist, "Fashion-MNIST", 60_000, 40),
    (Dataset::Cifar10, "CIFAR-10", 50_000, 20),
];
const COLUMNS: [&str; 6] = ["constant", "linear", "warm-up", "tuned", "LARS", "LAMB"];

/// Runs with the same batch, optimizer and rate, but different seeds.
type Trial<'a> = Vec<&'a Run>;

/// The median (of two runs, the larger), if more than half of them reached the accuracy.
fn steps(trial: &Trial<'_>) -> Option<usize> {
    let mut steps: Vec<_> = trial.iter().map(|run| run.steps.unwrap_or(usize::MAX)).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied().filter(|&steps| steps < usize::MAX)
}

/// The trials of a batch, one for each column. If there are several rates or warm-ups, the one that takes the fewest
/// steps, among those with the most seeds: a trial whose first run was slow was not repeated.
fn row<'a>(runs: &[&'a Run], batch: usize) -> [Trial<'a>; COLUMNS.len()] {
    let best = |batch, method, warms_up, lr: Option<f64>| {
        let mut trials = BTreeMap::<_, Trial<'_>>::new();
        for run in runs {
            let args = &run.args;
            let chosen = (args.batch_size, args.method, args.warm_up_epochs > 0);
            if chosen == (batch, method, warms_up) && lr.is_none_or(|lr| lr == args.lr) {
                trials.entry((args.lr.to_bits(), args.warm_up_epochs)).or_default().push(run);
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

// ANCHOR: fit
/// The `least` and `critical` for which `least * (1 + critical / batch)` best fits these steps.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let fits = (0..600).map(|power| {
        let critical = 1.02f64.powi(power);
        let log = |&(batch, steps): &(f64, f64)| (steps / (1.0 + critical / batch)).ln();
        let mean = points.iter().map(log).sum::<f64>() / points.len() as f64;
        let squared_error: f64 = points.iter().map(|point| (log(point) - mean).powi(2)).sum();
        (squared_error, (mean.exp(), critical))
    });
    fits.min_by(|a, b| a.0.total_cmp(&b.0)).map_or((0.0, 0.0), |(_, fit)| fit)
}
// ANCHOR_END: fit

/// Prints the tables, and draws the pictures if asked to.
pub fn run(args: &Args) -> Result<()> {
    args.plot.check(&PLOTS)?;
    let save = |file, title: &str, axes, mut series: Vec<Series>| {
        series.retain(|curve| !curve.points.is_empty());
        args.plot.save(file, || plot::lines(&Lines::new(title, axes, Scale::Log, series)))
    };
    let recorded = include_str!("batches.jsonl").lines().map(serde_json::from_str);
    let recorded = recorded.collect::<Result<Vec<Run>, _>>()?;
    let (mut tasks, mut noise_curves) = (Vec::new(), Vec::new());
    for ((dataset, name, images, epochs), file) in TASKS.into_iter().zip(PLOTS) {
        let runs = recorded.iter().filter(|run| run.args.dataset == dataset).collect::<Vec<_>>();
        let accuracy = runs.first().map_or(f64::NAN, |run| 100.0 * run.args.accuracy);
        let curve = |name: &str| Series { name: name.into(), points: Vec::new() };
        let mut curves: Vec<_> = COLUMNS.into_iter().chain(["given up"]).map(curve).collect();
        let mut rows = Vec::new();
        for batch in (5..14).map(|power| 1 << power) {
            let (limit, trials) = (images / batch * epochs, row(&runs, batch));
            if trials.iter().all(Vec::is_empty) {
                continue;
            }
            let mut cells = Vec::new();
            for (trial, curve) in trials.iter().zip(&mut curves) {
                cells.push(match steps(trial) {
                    Some(steps) => thousands(steps),
                    None if trial.is_empty() => String::new(),
                    None if trial.iter().any(|run| run.reached.is_none()) => "diverged".into(),
                    None => "never".into(),
                });
                let point = (batch as f64, steps(trial).unwrap_or(limit) as f64);
                curve.points.extend(trial.first().map(|_| point));
            }
            curves[COLUMNS.len()].points.push((batch as f64, limit as f64));
            let rate = |trial: &Trial<'_>| trial.first().map(|run| run.args.lr.to_string());
            cells.extend(trials[3..].iter().map(|trial| rate(trial).unwrap_or_default()));
            rows.push((batch, cells));
        }
        let (least, critical) = fit(&curves[3].points);
        let mut noise = Vec::new();
        for Run { args, noise_scale, .. } in runs {
            noise.extend(noise_scale.last().map(|last| (args.batch_size, last.1)));
            let point = |&(steps, samples)| (steps as f64, f64::from(samples));
            let points = noise_scale.iter().map(point).collect();
            noise_curves.push(Series { name: format!("{name}, {}", args.batch_size), points });
        }
        tasks.push(context! { name, accuracy, epochs, rows, least, critical, noise });
        save(file, &format!("Steps to {accuracy} % of {name}"), ["batch size", "steps"], curves)?;
    }
    let holes = context! { COLUMNS, tasks };
    template::print(&template::environment()?, include_str!("batches.jinja"), holes)?;
    Ok(save(PLOTS[2], "Gradient noise scale in training", ["steps", "samples"], noise_curves)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_fit_finds_the_formula_that_made_the_points() {
        let made = |batch: f64| (batch, 70.0 * (1.0 + 400.0 / batch));
        let (least, critical) = super::fit(&[32.0, 256.0, 2048.0].map(made));
        assert!((critical / 400.0 - 1.0).abs() < 0.02 && (least / 70.0 - 1.0).abs() < 0.02);
    }
}
