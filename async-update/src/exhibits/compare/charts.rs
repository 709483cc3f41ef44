//! Losses, batches and staleness as SVG files.

use super::runs::Measured;
use exhibit_kit::plot::{self, Bars, Lines, Scale, Series};
use tch_parallel::Result;

/// Draws a chart of what was measured with equal workers, and with a slow one.
type Draw = fn(&[Measured], &[Measured]) -> Result<String>;

/// All charts, by the names of their files.
pub const CHARTS: [(&str, Draw); 4] = [
    ("loss-time-slow.svg", |_, slow| losses("time", "time (s)", slow, seconds)),
    ("loss-updates.svg", |_, slow| losses("updates", "updates", slow, updates)),
    ("batches.svg", batches),
    ("staleness.svg", |_, slow| staleness(slow)),
];

/// When a batch was done.
fn seconds(found: &Measured, batch: usize) -> f64 {
    found.steps[batch].at - found.steps[0].at
}

/// How many updates there had been when a batch was done.
fn updates(found: &Measured, batch: usize) -> f64 {
    batch as f64 * (found.outcome.updates as f64 / found.outcome.batches as f64)
}

/// The training losses of all workers over `x` of each batch.
fn losses(
    over: &str,
    axis: &str,
    measured: &[Measured],
    x: fn(&Measured, usize) -> f64,
) -> Result<String> {
    let curve = |found: &Measured| {
        let losses = found.steps.iter().map(|step| f64::from(step.loss));
        let points: Vec<_> =
            losses.enumerate().map(|(batch, loss)| (x(found, batch), loss)).collect();
        // 24 means of several batches: the losses of single ones scatter too much to tell curves apart.
        let pieces = points.chunks(points.len().div_ceil(24));
        Series { name: found.method.into(), points: pieces.map(mean).collect() }
    };
    // These two take the steps of sync-allreduce, so its curve stands for theirs.
    let with_curve = |found: &&Measured| !["sync-ps", "ring"].contains(&found.method);
    let title = format!("One slow worker, over {over}");
    let series = measured.iter().filter(with_curve).map(curve).collect();
    plot::panels(&Lines::new(&title, [axis, "training loss"], Scale::Linear, series))
}

fn mean(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    (x / count, y / count)
}

fn batches(equal: &[Measured], slow: &[Measured]) -> Result<String> {
    let rate = |found: &Measured| found.outcome.batches as f64 / found.outcome.seconds;
    let group = |(equal, slow): (&Measured, &Measured)| {
        (equal.method.to_owned(), vec![rate(equal), rate(slow)])
    };
    let title = "Gradients that went into the model";
    let axis = "batches a second, all workers together";
    let (members, groups) = (["equal workers", "one slow"], equal.iter().zip(slow).map(group));
    plot::bars(&Bars::undivided(title, axis, "", &members, groups))
}

fn staleness(measured: &[Measured]) -> Result<String> {
    let histogram = |found: &Measured| {
        let share = |staleness| {
            let count = found.staleness.iter().filter(|&&found| found == staleness).count();
            (staleness as f64, 100.0 * count as f64 / found.staleness.len() as f64)
        };
        let largest = found.staleness.iter().max().copied()?;
        let points = (0..=largest).map(share).collect();
        Some(Series { name: found.method.into(), points })
    };
    let title = "One slow worker: how stale gradients are";
    let axes = ["staleness (updates of others)", "share of updates (%)"];
    let series = measured.iter().filter_map(histogram).collect();
    plot::panels(&Lines::new(title, axes, Scale::Linear, series))
}
