//! The ticks of an axis, and their labels.

use super::Scale;

/// The part of the number line that an axis shows.
pub(super) struct Range {
    low: f64,
    high: f64,
    scale: Scale,
    /// Values between `low` and `high` in rising order, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Range {
    /// From zero to `high`, with ticks in between; for lengths and sums.
    pub(super) fn from_zero(high: f64) -> Range {
        let high = if high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Range { low: 0.0, high, scale: Scale::Linear, ticks: multiples(step, 0.0, high) }
    }

    /// A range that begins and ends at a tick and holds all of `values`, which are finite, and
    /// above zero for a logarithmic scale.
    pub(super) fn around(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Range {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        match scale {
            Scale::Linear => Range::linear(low, high),
            Scale::Log => Range::log(low, high),
        }
    }

    fn linear(low: f64, high: f64) -> Range {
        let largest = low.abs().max(high.abs());
        // Closer than this, ticks would need more digits than an f64 has.
        let (low, high) = if high - low > 1e-9 * largest {
            (low, high)
        } else {
            let around = if largest > 0.0 { largest / 10.0 } else { 1.0 };
            (low - around, high + around)
        };
        let step = step(high - low);
        let low = (low / step).floor() * step;
        let high = (high / step).ceil() * step;
        Range { low, high, scale: Scale::Linear, ticks: multiples(step, low, high) }
    }

    fn log(low: f64, high: f64) -> Range {
        // The margin keeps a rounding error of the logarithm from adding a decade.
        let first = (low.log10() + 1e-9).floor() as i32;
        let last = ((high.log10() - 1e-9).ceil() as i32).max(first + 1);
        let few = last - first <= 3;
        let digits: &[u32] = if few { &[1, 2, 5] } else { &[1] };
        let stride = (last - first) as usize / 8 + 1;
        let in_decade = |decade| digits.iter().map(move |&digit| power(digit, decade));
        let mut ticks: Vec<_> = (first..=last).step_by(stride).flat_map(in_decade).collect();
        if few {
            let begin = ticks.iter().rposition(|tick| tick.0 <= low * (1.0 + 1e-9)).unwrap_or(0);
            let end = ticks.iter().position(|tick| tick.0 >= high * (1.0 - 1e-9));
            ticks.truncate(end.unwrap_or(ticks.len()).max(begin + 1) + 1);
            ticks.drain(..begin);
        }
        let low = ticks.iter().fold(low, |low, tick| low.min(tick.0));
        let high = ticks.iter().fold(high, |high, tick| high.max(tick.0));
        Range { low, high, scale: Scale::Log, ticks }
    }

    /// The labels of the ticks.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.ticks.iter().map(|(_, text)| text.as_str())
    }

    /// The position of `value` on the axis, from 0 at its start to 1 at its end.
    pub(super) fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

/// The distance between ticks on an axis of this `length`: one, two or five times a power of ten,
/// and at most six distances, which leaves room for the labels.
fn step(length: f64) -> f64 {
    let rough = length / 6.0;
    let magnitude = 10f64.powf(rough.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * magnitude >= rough);
    digit.unwrap_or(10.0) * magnitude
}

fn multiples(step: f64, low: f64, high: f64) -> Vec<(f64, String)> {
    // The ends may be multiples of the step up to a rounding error.
    let first = (low / step - 1e-6).ceil();
    let count = (high / step + 1e-6).floor() - first;
    let magnitude = step.log10().floor();
    let largest = low.abs().max(high.abs());
    (0..=count as usize)
        .map(|index| {
            let value = (first + index as f64) * step;
            let text = if value == 0.0 {
                "0".to_owned()
            } else if largest >= 1e6 || step < 1e-5 {
                let digits = value.abs().log10().floor() - magnitude;
                format!("{value:.*e}", digits.max(0.0) as usize)
            } else {
                format!("{value:.*}", (-magnitude).max(0.0) as usize)
            };
            (value, text)
        })
        .collect()
}

/// `digit` times ten to the power of `decade`, and its label.
fn power(digit: u32, decade: i32) -> (f64, String) {
    let value = f64::from(digit) * 10f64.powi(decade);
    let text = match decade {
        -4..=-1 => format!("{value:.*}", decade.unsigned_abs() as usize),
        0..=5 => format!("{value:.0}"),
        _ => format!("{digit}e{decade}"),
    };
    (value, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(range: &Range) -> Vec<&str> {
        range.texts().collect()
    }

    fn around(values: &[f64], scale: Scale) -> Range {
        Range::around(values.iter().copied(), scale)
    }

    #[test]
    fn ticks_are_round_numbers_with_the_digits_that_they_need() {
        assert_eq!(written(&Range::from_zero(41.7)), ["0", "10", "20", "30", "40"]);
        assert_eq!(written(&Range::from_zero(1.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(written(&around(&[-0.03, 0.1], Scale::Linear)), ["-0.05", "0", "0.05", "0.10"]);
        assert_eq!(written(&Range::from_zero(2.1e6)), ["0", "5e5", "1.0e6", "1.5e6", "2.0e6"]);
    }

    #[test]
    fn a_linear_axis_begins_and_ends_at_a_tick() {
        let range = around(&[0.61, 2.38], Scale::Linear);
        assert_eq!(written(&range), ["0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!(range.position(0.5), 0.0);
        assert_eq!(range.position(1.0), 0.25);
        assert_eq!(range.position(2.5), 1.0);
    }

    #[test]
    fn a_logarithmic_axis_gives_equal_ratios_equal_lengths() {
        let range = around(&[1.0, 100.0], Scale::Log);
        assert_eq!(written(&range), ["1", "2", "5", "10", "20", "50", "100"]);
        assert!((range.position(10.0) - 0.5).abs() < 1e-12);
        assert_eq!(written(&around(&[3.0, 8.0], Scale::Log)), ["2", "5", "10"]);
    }

    #[test]
    fn a_long_logarithmic_axis_has_ticks_at_powers_of_ten() {
        let range = around(&[1e-6, 3.0], Scale::Log);
        let powers = ["1e-6", "1e-5", "0.0001", "0.001", "0.01", "0.1", "1", "10"];
        assert_eq!(written(&range), powers);
        let range = around(&[1.0, 1e30], Scale::Log);
        assert!(range.ticks.len() <= 9, "{:?}", range.ticks);
        assert_eq!(range.position(1e30), 1.0);
    }

    #[test]
    fn a_single_value_gets_room_on_both_sides_or_a_neighbour() {
        for value in [-3.0, 0.0, 1e-300, 2.3, 1e300] {
            let range = around(&[value], Scale::Linear);
            assert!((0.1..0.9).contains(&range.position(value)), "{value}");
        }
        for value in [1e-300, 0.001, 1.0, 2.0, 3.0, 10.0, 1e300] {
            let range = around(&[value], Scale::Log);
            assert!((0.0..1.0).contains(&range.position(value)), "{value}");
        }
    }

    #[test]
    fn values_that_differ_in_their_last_bits_have_ticks_that_differ() {
        for values in [[2.304_109, 2.304_109_3], [1.0, 1.0 + f64::EPSILON], [-1e9, 1e-9]] {
            let range = around(&values, Scale::Linear);
            let mut texts = written(&range);
            texts.dedup();
            assert_eq!(texts.len(), range.ticks.len(), "{texts:?}");
            assert!(texts.iter().all(|text| text.len() < 16), "{texts:?}");
        }
    }
}
