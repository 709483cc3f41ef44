//! The largest batch that a device's memory allows.

use super::runs::{Measured, Runs};
use crate::args::Method;
use anyhow::Result;
use report::{Column, refused, size, table};

/// Memory counts from the third on, and of three the median time is not that of the first.
const STEPS: u64 = 3;

/// The largest batch of a method within a budget.
pub struct Largest {
    method: Method,
    batch_size: usize,
    /// What the fullest device needs for it.
    peak: usize,
    /// What it would need for the next larger batch.
    next_peak: usize,
    pairs_per_second: f64,
}

/// Measures until a batch is found that fits while the next does not. `known` is what was measured
/// already.
///
/// # Errors
/// [`Error::Argument`](tch_parallel::Error::Argument) for a budget that does not hold a pair for each device.
pub fn largest(runs: &Runs<'_>, known: &Measured, budget: usize) -> Result<Largest> {
    let (method, devices) = (known.method, runs.devices());
    let mut speeds = vec![(known.batch_size, known.step_seconds)];
    let known = (known.batch_size / devices, known.peak());
    let found = search(known, budget, |pairs| {
        let measured = runs.run(method, pairs * devices, STEPS)?;
        speeds.push((measured.batch_size, measured.step_seconds));
        Ok(measured.peak())
    })?;
    let (Some((pairs, peak)), (_, next_peak)) = found else {
        let (_, least) = found.1;
        let expected = format!(
            "at least {}, which {method} needs for a batch of {devices}, a pair for each device",
            size(least)
        );
        return Err(refused("--budget", size(budget), expected).into());
    };
    let batch_size = pairs * devices;
    let seconds = speeds.into_iter().find(|(size, _)| *size == batch_size);
    let pairs_per_second = seconds.map_or(f64::NAN, |(size, seconds)| size as f64 / seconds);
    Ok(Largest { method, batch_size, peak, next_peak, pairs_per_second })
}

/// A number of pairs on each device, and the peak that was measured with it.
type Point = (usize, usize);

/// The largest number of pairs that fits, if any does, and the next one, which does not.
///
/// Bytes are all but linear in the number of pairs, so two points predict the one that is sought,
/// and measuring it and its neighbour mostly ends the search.
fn search(
    known: Point,
    budget: usize,
    mut measure: impl FnMut(usize) -> Result<usize>,
) -> Result<(Option<Point>, Point)> {
    let (mut fits, mut exceeds): (Option<Point>, Option<Point>) = (None, None);
    // A smaller batch is quicker, and the machine has memory for it.
    let half = if known.0 > 1 { known.0 / 2 } else { 2 };
    let mut before = known;
    let mut latest = (half, measure(half)?);
    for point in [before, latest] {
        note(point, budget, &mut fits, &mut exceeds);
    }
    loop {
        let lowest = fits.map_or(1, |(pairs, _)| pairs + 1);
        if let Some(exceeds) = exceeds
            && exceeds.0 <= lowest
        {
            return Ok((fits, exceeds));
        }
        let highest = exceeds.map_or(usize::MAX, |(pairs, _)| pairs - 1);
        let pairs = predict(before, latest, budget).clamp(lowest, highest);
        before = latest;
        latest = (pairs, measure(pairs)?);
        note(latest, budget, &mut fits, &mut exceeds);
    }
}

fn note(point: Point, budget: usize, fits: &mut Option<Point>, exceeds: &mut Option<Point>) {
    if point.1 <= budget {
        if fits.is_none_or(|(pairs, _)| point.0 > pairs) {
            *fits = Some(point);
        }
    } else if exceeds.is_none_or(|(pairs, _)| point.0 < pairs) {
        *exceeds = Some(point);
    }
}

/// Where the line through two points meets the budget; twice as far as the points if it does not.
fn predict(one: Point, other: Point, budget: usize) -> usize {
    let [(x1, y1), (x2, y2)] = [one, other].map(|(pairs, peak)| (pairs as f64, peak as f64));
    let slope = (y2 - y1) / (x2 - x1);
    if slope > 0.0 { (x1 + (budget as f64 - y1) / slope) as usize } else { 2 * one.0.max(other.0) }
}

/// A row for each method.
pub fn table_of(largest: &[Largest], budget: usize) -> String {
    let columns = [
        Column::Left("method"),
        Column::Right("largest batch"),
        Column::Right("fullest device"),
        Column::Right("with the next"),
        Column::Right("pairs/s"),
    ];
    let row = |found: &Largest| {
        vec![
            found.method.to_string(),
            found.batch_size.to_string(),
            size(found.peak),
            size(found.next_peak),
            format!("{:.1}", found.pairs_per_second),
        ]
    };
    let rows: Vec<_> = largest.iter().map(row).collect();
    format!("With {} on each device:\n\n{}", size(budget), table(&columns, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `search` finds where `peak` gives the bytes of a number of pairs, and how often it
    /// measures.
    fn found(known: usize, budget: usize, peak: impl Fn(usize) -> usize) -> (usize, usize, usize) {
        let mut measured = 0;
        let (fits, exceeds) = search((known, peak(known)), budget, |pairs| {
            assert!(pairs > 0);
            measured += 1;
            Ok(peak(pairs))
        })
        .unwrap();
        (fits.map_or(0, |(pairs, _)| pairs), exceeds.0, measured)
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
        let outcome = search((16, 260), 105, |pairs| Ok(100 + 10 * pairs)).unwrap();
        assert_eq!(outcome, (None, (1, 110)));
    }
}
