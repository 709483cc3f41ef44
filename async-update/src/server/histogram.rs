//! How stale the gradients were that went into a model.

use report::{Column, table};

/// How many stars the longest bar has.
const WIDTH: usize = 40;

/// How many updates had each staleness up to the largest: a line each, with a bar.
pub fn histogram(staleness: &[usize]) -> String {
    let mut counts = vec![0; staleness.iter().max().map_or(0, |most| most + 1)];
    staleness.iter().for_each(|&staleness| counts[staleness] += 1);
    let most = counts.iter().copied().max().unwrap_or(1);
    let row = |(staleness, &count): (usize, &usize)| {
        let bar = "*".repeat((count * WIDTH).div_ceil(most));
        vec![staleness.to_string(), count.to_string(), bar]
    };
    let rows: Vec<_> = counts.iter().enumerate().map(row).collect();
    let columns = [Column::Right("staleness"), Column::Right("updates"), Column::Left("")];
    table(&columns, &rows).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_staleness_up_to_the_largest_has_a_line() {
        let expected = "staleness  updates
        0        2  ********************
        1        4  ****************************************
        2        0
        3        1  **********";
        assert_eq!(histogram(&[1, 1, 1, 1, 3, 0, 0]), expected);
    }
}
