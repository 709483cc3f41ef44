//! A straight line through measured times.

use super::model::Link;
use crate::exhibits::least_squares::{least_squares, least_squares_of};

/// A message's size in bytes, and the seconds that it took.
pub type Point = (f64, f64);

/// The α and β for which α + βn is closest to the times, by least squares of relative errors. At least
/// two different sizes are needed; times are above zero.
///
/// Sizes span seven powers of ten, and so do the errors of times: with equal weights the largest
/// messages alone would decide. Neither α nor β is below zero, although times on a busy machine may
/// lie closest to a line on which messages or bytes take negative time.
pub fn line(points: &[Point]) -> Link {
    let row = |&(bytes, seconds): &Point| [1.0 / seconds, bytes / seconds, 1.0];
    let rows: Vec<_> = points.iter().map(row).collect();
    // The sum of squares is convex: where its least lies beyond an edge, the edge has the next one.
    match least_squares(&rows) {
        [below, _] if below < 0.0 => Link { latency: 0.0, per_byte: least_squares_of(1, &rows) },
        [_, below] if below < 0.0 => Link { latency: least_squares_of(0, &rows), per_byte: 0.0 },
        [latency, per_byte] => Link { latency, per_byte },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { latency: 2e-5, per_byte: 4e-10 };

    #[test]
    fn times_on_a_line_give_that_line_and_large_ones_that_are_off_leave_the_latency_alone() {
        // Sums over seven powers of ten lose as many of a double's sixteen digits.
        let exact = (1.0, 1e-9, 1e-9);
        // 10 % of the largest message are 34 latencies.
        let off = (1.1, 0.05, 0.1);
        for (error, latency, per_byte) in [exact, off] {
            let sizes = (1..=12).map(|power| 4f64.powi(power));
            let mut points: Vec<Point> = sizes.map(|size| (size, LINK.message(size))).collect();
            points[11].1 *= error;
            let found = line(&points);
            assert!((found.latency / LINK.latency - 1.0).abs() < latency, "{found:?}");
            assert!((found.per_byte / LINK.per_byte - 1.0).abs() < per_byte, "{found:?}");
        }
    }

    #[test]
    fn nothing_costs_less_than_nothing() {
        // Long messages that take less time than short ones.
        assert_eq!(line(&[(4.0, 2.0), (8.0, 2.0), (12.0, 1.0)]).per_byte, 0.0);
        // Times that grow faster than sizes.
        let found = line(&[(1.0, 1.0), (2.0, 4.0), (3.0, 9.0)]);
        assert_eq!(found.latency, 0.0);
        assert!(found.per_byte > 0.0, "{found:?}");
    }
}
