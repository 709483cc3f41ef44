//! Memory, time and idleness of each device.

use super::runs::Measured;
use report::comparison::{Cell, device_table};
use report::{Column, size};

/// A row for each method and device.
pub fn table_of(measured: &[Measured]) -> String {
    let columns: [(Column, Cell<Measured>); 11] = [
        (Column::Left("method"), Cell::Training(|found| found.method.to_string())),
        (Column::Left("device"), Cell::Device(|device| device.device.clone())),
        (Column::Right("between steps"), Cell::Device(|device| size(device.live))),
        (Column::Right("parameters"), Cell::Device(|device| size(device.parameters))),
        (Column::Right("gradients"), Cell::Device(|device| size(device.gradients))),
        (Column::Right("Adam's state"), Cell::Device(|device| size(device.optimizer_state))),
        (Column::Right("buckets"), Cell::Device(|device| size(device.others()))),
        (Column::Right("at the peak"), Cell::Device(|device| size(device.peak))),
        (Column::Right("activations, outputs"), Cell::Device(|device| size(device.activations()))),
        (Column::Right("s/step"), Cell::Training(|found| format!("{:.2}", found.step_seconds))),
        (
            Column::Right("idle"),
            Cell::Device(|device| format!("{:.0} %", 100.0 * device.idle_share)),
        ),
    ];
    device_table(&columns, measured)
}
