//! The largest batch that a device's memory allows.

use super::runs::{Measured, Runs};
use anyhow::Result;
use exhibit_kit::template;
use minijinja::{Value, context};
use report::{flag_value, size};
use tch_parallel::Error;

/// Memory counts from the third step on, and the median time of three is not that of the first.
const STEPS: u64 = 3;

/// A table of each method's largest batch within a budget. `measured` are trainings with any batch.
/// Refuses a budget that does not hold one pair for each device.
pub fn table_of(runs: &Runs<'_>, measured: &[Measured], budget: usize) -> Result<String> {
    let largest = measured.iter().map(|known| largest(runs, known, budget));
    let holes = context! { budget, largest => largest.collect::<Result<Vec<_>>>()? };
    Ok(template::environment()?.render_str(include_str!("budget.jinja"), holes)?)
}

/// Trains until a batch is found that fits while the next does not: the holes of a row.
fn largest(runs: &Runs<'_>, known: &Measured, budget: usize) -> Result<Value> {
    let (method, devices) = (flag_value(&known.method), runs.args.devices.len());
    let point = |found: &Measured| Point {
        pairs: found.batch_size / devices,
        peak: found.devices.iter().map(|device| device.peak).max().unwrap_or(0),
        step_seconds: found.step_seconds,
    };
    let (fits, exceeds) = search(point(known), budget, |pairs| {
        Ok(point(&runs.run(known.method, pairs * devices, STEPS)?))
    })?;
    let Some(fits) = fits else {
        let expected = format!(
            "at least {}, which {method} needs for a batch of {devices}, a pair for each device",
            size(exceeds.peak)
        );
        return Err(Error::argument("--budget", size(budget), expected).into());
    };
    let batch_size = fits.pairs * devices;
    Ok(context! {
        method => method,
        batch_size,
        peak => fits.peak,
        next_peak => exceeds.peak,
        pairs_per_second => batch_size as f64 / fits.step_seconds,
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    /// In a batch, on each device.
    pairs: usize,
    /// The bytes of the fullest device.
    peak: usize,
    step_seconds: f64,
}

/// The largest number of pairs that fits, if any does, and the next one, which does not.
///
/// Memory is almost linear in the number of pairs, so two points predict the one that is sought,
/// and measuring it and its neighbour usually ends the search.
fn search(
    known: Point,
    budget: usize,
    measure: impl Fn(usize) -> Result<Point>,
) -> Result<(Option<Point>, Point)> {
    // A smaller batch is quicker, and the machine has memory for it.
    let mut pairs = if known.pairs > 1 { known.pairs / 2 } else { 2 };
    let mut latest = known;
    let mut points = vec![known];
    loop {
        let before = latest;
        latest = measure(pairs)?;
        points.push(latest);
        let (fit, exceed): (Vec<_>, Vec<_>) =
            points.iter().copied().partition(|point| point.peak <= budget);
        let fits = fit.into_iter().max_by_key(|point| point.pairs);
        let exceeds = exceed.into_iter().min_by_key(|point| point.pairs);

        let lowest = fits.map_or(1, |point| point.pairs + 1);
        let highest = exceeds.map_or(usize::MAX, |point| point.pairs - 1);
        if let Some(exceeds) = exceeds
            && highest < lowest
        {
            return Ok((fits, exceeds));
        }
        pairs = predict(before, latest, budget).clamp(lowest, highest);
    }
}

/// Where the line through two points meets the budget; twice as far as the points if it does not.
fn predict(one: Point, other: Point, budget: usize) -> usize {
    let [(x1, y1), (x2, y2)] = [one, other].map(|point| (point.pairs as f64, point.peak as f64));
    let slope = (y2 - y1) / (x2 - x1);
    if slope > 0.0 {
        (x1 + (budget as f64 - y1) / slope) as usize
    } else {
        2 * one.pairs.max(other.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn point(pairs: usize, peak: usize) -> Point {
        Point { pairs, peak, step_seconds: 1.0 }
    }

    /// What `search` finds where `peak` gives the bytes of a number of pairs, and how often it measures.
    fn found(known: usize, budget: usize, peak: impl Fn(usize) -> usize) -> (usize, usize, usize) {
        let measured = Cell::new(0);
        let (fits, exceeds) = search(point(known, peak(known)), budget, |pairs| {
            assert!(pairs > 0);
            measured.set(measured.get() + 1);
            Ok(point(pairs, peak(pairs)))
        })
        .unwrap();
        (fits.map_or(0, |point| point.pairs), exceeds.pairs, measured.get())
    }

    #[test]
    fn a_linear_need_is_found_with_three_measurements() {
        for budget in [1000, 1099, 1100, 5023, 123_456] {
            let largest = (budget - 100) / 10;
            let (fits, exceeds, measured) = found(16, budget, |pairs| 100 + 10 * pairs);
            assert_eq!((fits, exceeds), (largest, largest + 1));
            assert_eq!(measured, 3, "{budget}");
        }
    }

    #[test]
    fn any_growing_need_is_found() {
        for known in [1, 2, 16] {
            for budget in [1, 30, 500, 20_000] {
                for peak in
                    [|n| n * n, |n| n + 100 * (n / 7), |n| 20 * usize::ilog2(n) as usize + n]
                {
                    let (fits, exceeds, measured) = found(known, budget, peak);
                    assert_eq!(exceeds, fits + 1);
                    assert!(fits == 0 || peak(fits) <= budget);
                    assert!(peak(exceeds) > budget);
                    assert!(measured < 40, "{known} {budget} {measured}");
                }
            }
        }
    }

    #[test]
    fn a_budget_that_holds_no_pair_is_told_with_the_least_that_would() {
        let measure = |pairs| Ok(point(pairs, 100 + 10 * pairs));
        assert_eq!(search(point(16, 260), 105, measure).unwrap(), (None, point(1, 110)));
    }
}
