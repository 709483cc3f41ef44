//! From which learning rate on asynchronous updates diverge.

use super::workers::{Workers, descend, queue};
use serde::Serialize;
use std::{f64::consts::PI, iter::successors};

/// What becomes of w, and after how many updates that was certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "name", content = "updates", rename_all = "lowercase")]
pub enum End {
    /// It has come close to the minimum, and so has everything that workers have read.
    Converges(usize),
    /// It has gone far away.
    Diverges(usize),
    /// Neither after [`PATIENCE`] updates: at the limit w goes to and fro for ever.
    Neither,
}

/// Updates after which a run is given up. Half a thousandth beside the limit it takes fewer.
const PATIENCE: usize = 10_000_000;

impl End {
    fn converges(self) -> bool {
        matches!(self, End::Converges(_))
    }
}

/// Where a sequence of numbers above 0, which begins at 1, ends: below 1/bound, or above bound.
fn end(sizes: impl Iterator<Item = f64>, bound: f64) -> End {
    for (number, size) in sizes.take(PATIENCE).enumerate() {
        if size < 1.0 / bound {
            return End::Converges(number);
        }
        if size.is_nan() || size > bound {
            return End::Diverges(number);
        }
    }
    End::Neither
}

/// The rate ηh up to which there is convergence, to this number of binary digits.
fn limit(highest: f64, digits: u32, converges: impl Fn(f64) -> bool) -> f64 {
    let (mut stable, mut unstable) = (0.0, highest);
    for _ in 0..digits {
        let middle = (stable + unstable) / 2.0;
        if converges(middle) { stable = middle } else { unstable = middle }
    }
    (stable + unstable) / 2.0
}

// === Everybody in turn ===

/// When M workers take turns, every step is made at w of `staleness` = M - 1 updates before:
/// w_{t+1} = w_t - ηh w_{t-τ}.
pub fn in_turn(staleness: usize, rate: f64) -> End {
    let sizes = descend(staleness + 1, rate, (0..=staleness).cycle(), Workers::farthest);
    // Far enough for the slowest of all modes to be alone, and to have its way.
    end(sizes, 1e12)
}

/// Theory: 2 sin(π / (2(2τ + 1))), where two of the roots of z^{τ+1} - z^τ + ηh leave the unit circle
/// (Levin and May 1976).
pub fn theory_in_turn(staleness: usize) -> f64 {
    2.0 * (PI / (2.0 * (2.0 * staleness as f64 + 1.0))).sin()
}

/// Measured: runs just below it converge, and just above it diverge.
pub fn measured_in_turn(staleness: usize) -> f64 {
    limit(4.0, 16, |rate| in_turn(staleness, rate).converges())
}

// === In the order of a queue ===

/// The means over all runs of w², w S, Σ r² and S², where r is what a worker has read, and S the sum
/// of these. An update makes of each a sum of all four, so they can be followed without any runs.
type Squares = [f64; 4];

/// These means at the beginning, and after each update.
fn squares(workers: usize, rate: f64) -> impl Iterator<Item = Squares> {
    let m = workers as f64;
    successors(Some([1.0, m, m, m * m]), move |squares| Some(updated(*squares, m, rate)))
}

/// The mean over which of m workers is next, with w' = w - a r, and S' = S + w - (1 + a) r.
fn updated([ww, ws, rr, ss]: Squares, m: f64, a: f64) -> Squares {
    // Of the next worker's r: the means of w r, r² and S r.
    let [wr, r2, sr] = [ws, rr, ss].map(|sum| sum / m);
    let ww_next = ww - 2.0 * a * wr + a * a * r2;
    [
        ww_next,
        ws + ww - (1.0 + 2.0 * a) * wr - a * sr + a * (1.0 + a) * r2,
        rr - r2 + ww_next,
        ss + ww + (1.0 + a).powi(2) * r2 + 2.0 * ws - 2.0 * (1.0 + a) * (sr + wr),
    ]
}

/// Theory for the mean of w²: from here on a few runs stray so far that it becomes meaningless.
pub fn theory_mean_square(workers: usize) -> f64 {
    limit(4.0, 24, |rate| end(squares(workers, rate).map(|[_, _, rr, _]| rr), 1e12).converges())
}

/// Single runs in the order of a queue.
const RUNS: u64 = 25;

/// Measured: from here on more than half of the single runs diverge.
pub fn measured_single(workers: usize) -> f64 {
    let converges = |rate: f64, seed: u64| {
        let sizes = descend(workers, rate, queue(workers, seed), Workers::farthest);
        // By far more than chance takes a run to and fro.
        end(sizes, 1e40).converges()
    };
    let converged = |rate| (0..RUNS).filter(|run| converges(rate, *run)).count();
    // Halved, this does not give 1: there all numbers are whole, and a run may end at 0 by chance.
    limit(1.9, 10, |rate| 2 * converged(rate) > RUNS as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_squares_are_means_over_all_orders() {
        const UPDATES: u32 = 5;
        let (workers, rate) = (3usize, 0.7);
        let [theory, ..] = squares(workers, rate).nth(UPDATES as usize).unwrap();
        let orders = workers.pow(UPDATES);
        let squares = (0..orders).map(|order| {
            let turns = (0..UPDATES).map(|turn| order / workers.pow(turn) % workers);
            descend(workers, rate, turns, |state| state.w.powi(2)).last().unwrap()
        });
        let mean = squares.sum::<f64>() / orders as f64;
        assert!((mean - theory).abs() < 1e-12, "{mean}, not {theory}");
    }
}
