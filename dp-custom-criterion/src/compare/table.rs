//! Memory, time and idleness of each device.

use super::runs::Measured;
use report::{Column, size, table};

/// A row for each method and device.
pub fn table_of(measured: &[Measured]) -> String {
    let columns = [
        Column::Left("method"),
        Column::Left("device"),
        Column::Right("between steps"),
        Column::Right("parameters"),
        Column::Right("gradients"),
        Column::Right("Adam's state"),
        Column::Right("buckets"),
        Column::Right("at the peak"),
        Column::Right("activations, outputs"),
        Column::Right("s/step"),
        Column::Right("idle"),
    ];
    let mut rows = Vec::new();
    for Measured { method, devices, step_seconds, .. } in measured {
        for (index, device) in devices.iter().enumerate() {
            let of_method = |text: String| if index == 0 { text } else { String::new() };
            rows.push(vec![
                of_method(method.to_string()),
                device.device.clone(),
                size(device.live),
                size(device.parameters),
                size(device.gradients),
                size(device.optimizer_state),
                size(device.others()),
                size(device.peak),
                size(device.activations()),
                of_method(format!("{step_seconds:.2}")),
                format!("{:.0} %", 100.0 * device.idle_share),
            ]);
        }
    }
    table(&columns, &rows)
}
