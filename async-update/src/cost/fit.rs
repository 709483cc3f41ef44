//! A straight line through measured times.

use super::model::Link;

/// A message's size in bytes, and the seconds that it took.
pub type Point = (f64, f64);

/// The α and β for which α + βn is closest to the times, by least squares of relative errors.
///
/// Each point has the weight 1/T². Sizes go over seven powers of ten, and so do the errors of
/// times: with equal weights the largest messages alone would decide, and α, which they hardly
/// show, would be whatever is left over.
///
/// At least two different sizes are needed; times are above zero.
pub fn line(points: &[Point]) -> Link {
    // The normal equations of a weighted line.
    let (mut w, mut wn, mut wnn, mut wt, mut wnt) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(bytes, seconds) in points {
        let weight = 1.0 / (seconds * seconds);
        w += weight;
        wn += weight * bytes;
        wnn += weight * bytes * bytes;
        wt += weight * seconds;
        wnt += weight * bytes * seconds;
    }
    let determinant = w * wnn - wn * wn;
    Link {
        latency: (wnn * wt - wn * wnt) / determinant,
        per_byte: (w * wnt - wn * wt) / determinant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Link = Link { latency: 2e-5, per_byte: 4e-10 };

    fn points(error: impl Fn(i32) -> f64) -> Vec<Point> {
        let point = |power| (4f64.powi(power), LINK.message(4f64.powi(power)) * error(power));
        (1..=12).map(point).collect()
    }

    fn distance(found: f64, expected: f64) -> f64 {
        (found / expected - 1.0).abs()
    }

    #[test]
    fn times_on_a_line_give_that_line() {
        let found = line(&points(|_| 1.0));
        // Sums over seven powers of ten lose as many of a double's sixteen digits.
        assert!(distance(found.latency, LINK.latency) < 1e-9, "{found:?}");
        assert!(distance(found.per_byte, LINK.per_byte) < 1e-9, "{found:?}");
    }

    #[test]
    fn large_messages_that_are_off_leave_the_latency_alone() {
        // 10 % of the largest message are 34 latencies.
        let found = line(&points(|power| if power == 12 { 1.1 } else { 1.0 }));
        assert!(distance(found.latency, LINK.latency) < 0.05, "{found:?}");
        assert!(distance(found.per_byte, LINK.per_byte) < 0.1, "{found:?}");
    }
}
