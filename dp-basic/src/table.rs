//! Tables in plain text, and numbers that can be read at a glance.

use std::time::Duration;

/// A column's heading, and the side on which its cells are flush.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// For words.
    Left(&'static str),
    /// For numbers, so that their digits stand below each other.
    Right(&'static str),
}

/// Lays rows out below their headings, two blanks between columns, each line ended. Cells that a
/// row lacks stay empty.
pub fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let header: Vec<_> = columns.iter().map(|column| column.heading().to_owned()).collect();
    let width = |index: usize| {
        let cells = std::iter::once(&header).chain(rows).filter_map(|row| row.get(index));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for ((column, cell), width) in columns.iter().zip(row).zip(&widths) {
            line += &match column {
                Column::Left(_) => format!("{cell:<width$}  "),
                Column::Right(_) => format!("{cell:>width$}  "),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

impl Column {
    fn heading(self) -> &'static str {
        match self {
            Column::Left(heading) | Column::Right(heading) => heading,
        }
    }
}

/// The number with a comma between groups of three digits: 59,136,001.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in milliseconds, to the microsecond.
pub fn milliseconds(duration: Duration) -> String {
    format!("{:.3}", duration.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_flush_left_and_numbers_flush_right() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(
            &[Column::Left("step"), Column::Right("bytes")],
            &[row(["gather", "8"]), row(["loss", "1,024"])],
        );
        assert_eq!(text, "step    bytes\ngather      8\nloss    1,024\n");
    }

    #[test]
    fn a_comma_stands_between_groups_of_three_digits() {
        assert_eq!([0, 999, 1000, 59_136_001].map(thousands), ["0", "999", "1,000", "59,136,001"]);
    }
}
