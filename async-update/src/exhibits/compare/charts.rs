//! Losses, updates and staleness as SVG files.

use super::runs::Measured;
use crate::exhibits::check_plots;
use report::plot::{self, Axis, Bars, Group, Lines, Scale, Series, Unit};
use std::path::Path;
use tch_parallel::Result;

/// Into so many pieces a curve is cut, each the mean of its batches: the losses of single batches
/// scatter too much to be told apart.
const PIECES: usize = 24;

/// Draws a chart of what was measured with equal workers, and with a slow one.
type Draw = fn(&[Measured], &[Measured]) -> Result<String>;

/// All charts, by the names of their files.
const CHARTS: [(&str, Draw); 6] = [
    ("loss-time.svg", |equal, _| plot::lines(&against_time(equal, "Equal workers"))),
    ("loss-time-slow.svg", |_, slow| plot::lines(&against_time(slow, "One slow worker"))),
    ("loss-updates.svg", |_, slow| plot::lines(&against_updates(slow))),
    ("updates.svg", |equal, slow| plot::bars(&updates(equal, slow))),
    ("batches.svg", |equal, slow| plot::bars(&batches(equal, slow))),
    ("staleness.svg", |_, slow| plot::lines(&staleness(slow))),
];

/// Makes the directory, and refuses one that cannot be written to, before any work is done.
pub fn check_destination(directory: &Path) -> Result<()> {
    check_plots(directory, &CHARTS.map(|(file, _)| file))
}

/// Writes all charts into the directory.
pub fn save(directory: &Path, equal: &[Measured], slow: &[Measured]) -> Result<()> {
    CHARTS.iter().try_for_each(|(file, draw)| plot::save(directory.join(file), &draw(equal, slow)?))
}

fn against_time(measured: &[Measured], title: &str) -> Lines {
    losses(title, ("time", "time (s)"), measured, |found| {
        let begin = found.steps.first().map_or(0.0, |step| step.at);
        found.steps.iter().map(|step| step.at - begin).collect()
    })
}

fn against_updates(measured: &[Measured]) -> Lines {
    losses("One slow worker", ("updates", "updates"), measured, |found| {
        let per_batch = found.outcome.updates as f64 / found.outcome.batches as f64;
        (0..found.steps.len()).map(|batch| batch as f64 * per_batch).collect()
    })
}

/// The training losses of all workers over `x`, which has a value for each batch.
fn losses(
    title: &str,
    (over, axis): (&str, &str),
    measured: &[Measured],
    x: impl Fn(&Measured) -> Vec<f64>,
) -> Lines {
    let curve = |found: &Measured| {
        let losses = found.steps.iter().map(|step| f64::from(step.loss));
        let points: Vec<_> = x(found).into_iter().zip(losses).collect();
        let piece = points.len().div_ceil(PIECES);
        Series { name: found.method.name(), points: points.chunks(piece).map(mean).collect() }
    };
    Lines {
        title: format!("{title}: training loss over {over}"),
        x: Axis { title: axis.into(), scale: Scale::Linear },
        y: Axis { title: "training loss".into(), scale: Scale::Log },
        series: measured.iter().filter(|found| found.method.has_curve).map(curve).collect(),
    }
}

fn mean(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    (x / count, y / count)
}

/// A method in which every worker updates parameters of its own counts the updates of all.
fn updates(equal: &[Measured], slow: &[Measured]) -> Bars {
    rates("Updates of the model", "updates", equal, slow, |found| found.outcome.updates)
}

fn batches(equal: &[Measured], slow: &[Measured]) -> Bars {
    let title = "Gradients that went into the model";
    rates(title, "batches", equal, slow, |found| found.outcome.batches)
}

/// How many of something there were in a second.
fn rates(
    title: &str,
    unit: &str,
    equal: &[Measured],
    slow: &[Measured],
    number: impl Fn(&Measured) -> usize,
) -> Bars {
    let rate = |found: &Measured| vec![number(found) as f64 / found.outcome.seconds];
    let group = |(equal, slow): (&Measured, &Measured)| Group {
        name: equal.method.name(),
        values: vec![rate(equal), rate(slow)],
    };
    Bars {
        title: title.into(),
        axis: format!("{unit} a second, all workers together"),
        unit: Unit::Other(String::new()),
        parts: vec![format!("{unit}/s")],
        members: vec!["equal workers".into(), "one slow".into()],
        groups: equal.iter().zip(slow).map(group).collect(),
    }
}

fn staleness(measured: &[Measured]) -> Lines {
    let histogram = |found: &Measured| {
        let largest = found.staleness.iter().max().copied().unwrap_or(0);
        let share = |staleness| {
            let count = found.staleness.iter().filter(|&&found| found == staleness).count();
            (staleness as f64, 100.0 * count as f64 / found.staleness.len() as f64)
        };
        Series { name: found.method.name(), points: (0..=largest).map(share).collect() }
    };
    Lines {
        title: "One slow worker: how stale gradients are".into(),
        x: Axis {
            title: "updates of others since the parameters were read".into(),
            scale: Scale::Linear,
        },
        y: Axis { title: "share of updates (%)".into(), scale: Scale::Linear },
        series: measured
            .iter()
            .filter(|found| !found.staleness.is_empty())
            .map(histogram)
            .collect(),
    }
}
