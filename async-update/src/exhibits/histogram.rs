//! How stale the gradients were that went into a model.

use report::aligned;

/// The width of the longest bar in characters.
const WIDTH: usize = 30;

/// The end of a bar, in eighths of a character.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// How many updates had each staleness up to the largest: a line each, with a bar.
pub fn histogram(staleness: &[usize]) -> String {
    let mut counts = vec![0; staleness.iter().max().map_or(0, |most| most + 1)];
    staleness.iter().for_each(|&staleness| counts[staleness] += 1);
    let most = counts.iter().copied().max().unwrap_or(1);
    let mut lines = vec![vec!["staleness".to_owned(), "updates".to_owned()]];
    for (staleness, &count) in counts.iter().enumerate() {
        lines.push(vec![staleness.to_string(), count.to_string(), bar(count, most)]);
    }
    aligned(&[true, true, false], &lines).trim_end().to_owned()
}

fn bar(count: usize, most: usize) -> String {
    // Rounded up, so that a single update is visible beside thousands.
    let eighths = (8 * WIDTH * count).div_ceil(most);
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_staleness_up_to_the_largest_has_a_line() {
        let expected = "staleness  updates
        0        2  ███████████████
        1        4  ██████████████████████████████
        2        0
        3        1  ███████▌";
        assert_eq!(histogram(&[1, 1, 1, 1, 3, 0, 0]), expected);
    }

    #[test]
    fn bars_are_drawn_to_an_eighth_of_a_character_and_what_is_counted_is_visible() {
        let ends = [0, 1, 2, 3, 4, 5, 6, 7].map(|count| bar(count, 240));
        assert_eq!(ends, EIGHTHS);
        assert_eq!(bar(53, 120), "█████████████▎");
        assert_eq!(bar(1, 100_000), "▏");
    }
}
