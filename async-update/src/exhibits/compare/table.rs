//! What each method did in a second, and what it learnt, as a table.

use super::runs::Measured;
use report::{Column, table};

/// One row for each method.
pub fn table_of(measured: &[Measured]) -> String {
    let columns = [
        Column::Left("method"),
        Column::Right("s"),
        Column::Right("updates/s"),
        Column::Right("batches/s"),
        Column::Right("staleness"),
        Column::Right("at most"),
        Column::Right("loss"),
        Column::Right("accuracy"),
    ];
    table(&columns, &measured.iter().map(row).collect::<Vec<_>>())
}

fn row(measured: &Measured) -> Vec<String> {
    let Measured { method, outcome, staleness, .. } = measured;
    let mean = staleness.iter().sum::<usize>() as f64 / staleness.len().max(1) as f64;
    let largest = staleness.iter().max().copied().unwrap_or(0);
    vec![
        method.name(),
        format!("{:.2}", outcome.seconds),
        format!("{:.0}", outcome.updates as f64 / outcome.seconds),
        format!("{:.0}", outcome.batches as f64 / outcome.seconds),
        format!("{mean:.1}"),
        largest.to_string(),
        format!("{:.4}", outcome.loss),
        format!("{:.1} %", 100.0 * outcome.accuracy),
    ]
}
