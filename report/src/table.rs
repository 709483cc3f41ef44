//! Tables in plain text, and numbers that can be read at a glance.

use indicatif::HumanCount;

/// Formats lines of cells in columns, aligned to one side each. Cells that a line lacks stay empty.
///
/// ```
/// use report::{aligned, thousands};
///
/// let row = |step: &str, bytes: &str| vec![step.to_owned(), bytes.to_owned()];
/// let text = aligned(&[false, true], &[row("step", "bytes"), row("loss", &thousands(1024))]);
/// assert_eq!(text, "step  bytes\nloss  1,024\n");
/// ```
pub fn aligned(flush_right: &[bool], lines: &[Vec<String>]) -> String {
    let width = |index: usize| {
        let cells = lines.iter().filter_map(|line| line.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..flush_right.len()).map(width).collect();
    let row = |line: &Vec<String>| {
        let cells = line.iter().zip(flush_right).zip(&widths).map(|((cell, right), width)| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(row).collect()
}

/// The number with a comma between groups of three digits: 59,136,001.
pub fn thousands(number: usize) -> String {
    HumanCount(number as u64).to_string()
}

/// A time in seconds, as `h:mm:ss`.
///
/// ```
/// assert_eq!(report::hours(3725), "1:02:05");
/// ```
pub fn hours(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
