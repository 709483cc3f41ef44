//! How stale the gradients were that went into a model.

use report::{Column, table};
use std::fmt;

/// How many stars the longest bar has.
const WIDTH: usize = 40;

/// How many updates had each staleness.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: Vec<usize>,
}

impl Histogram {
    pub fn add(&mut self, staleness: usize) {
        if self.counts.len() <= staleness {
            self.counts.resize(staleness + 1, 0);
        }
        self.counts[staleness] += 1;
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.counts.iter().copied().max().unwrap_or(0).max(1);
        let row = |(staleness, &count): (usize, &usize)| {
            let bar = "*".repeat((count * WIDTH).div_ceil(most));
            vec![staleness.to_string(), count.to_string(), bar]
        };
        let rows: Vec<_> = self.counts.iter().enumerate().map(row).collect();
        let columns = [Column::Right("staleness"), Column::Right("updates"), Column::Left("")];
        f.write_str(table(&columns, &rows).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_staleness_up_to_the_largest_has_a_line() {
        let mut histogram = Histogram::default();
        [1, 1, 1, 1, 3, 0, 0].into_iter().for_each(|staleness| histogram.add(staleness));
        let expected = "staleness  updates
        0        2  ********************
        1        4  ****************************************
        2        0
        3        1  **********";
        assert_eq!(histogram.to_string(), expected);
    }
}
