//! Amounts of memory, as people write them.

const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Formats bytes with three digits, in the largest unit in which the amount is at least 1.
///
/// ```
/// use report::{parse_size, size};
///
/// assert_eq!(size(5_000_000), "4.77 MiB");
/// assert_eq!(parse_size("1.5 MiB"), Ok(3 << 19));
/// ```
pub fn size(bytes: usize) -> String {
    let (unit, power) = UNITS.into_iter().find(|(_, power)| bytes >> power > 0).unwrap_or(("B", 0));
    let amount = bytes as f64 / f64::from(1u32 << power);
    match (power, amount) {
        (0, _) => format!("{bytes} {unit}"),
        (_, ..9.995) => format!("{amount:.2} {unit}"),
        (_, ..99.95) => format!("{amount:.1} {unit}"),
        _ => format!("{amount:.0} {unit}"),
    }
}

/// Reads a number with its unit, `2GiB` or `1.5 MiB`, and returns bytes, or a text that says what is expected.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let sized = UNITS.into_iter().find_map(|(unit, power)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        (number.is_finite() && number > 0.0).then(|| number * f64::from(1u32 << power))
    });
    let whole = sized.filter(|bytes| *bytes >= 1.0).map(|bytes| bytes as usize);
    whole.ok_or_else(|| "expected a number and B, KiB, MiB or GiB, such as 2GiB".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_digits_and_a_unit() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (64 << 20, "64.0 MiB"),
            (700 << 20, "700 MiB"),
            (3 << 30, "3.00 GiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn a_size_is_a_number_with_a_unit() {
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_size("100B"), Ok(100));
        for text in ["", "2", "GiB", "2GB", "-1GiB", "0MiB", "NaN GiB", "inf B", "0.5B", "two GiB"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
