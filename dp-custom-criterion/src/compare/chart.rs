//! Peaks as a bar chart.

use super::runs::Measured;
use report::DeviceReport;
use report::plot::{Bars, Group, Unit};

/// A bar for each method and device, as long as its peak, and what it consists of.
pub fn peaks(measured: &[Measured]) -> Bars {
    let members = measured.first().map(|first| &first.devices).into_iter().flatten();
    let parts = |device: &DeviceReport| {
        [device.parameters, device.optimizer_state, device.others(), device.activations()]
            .map(|bytes| bytes as f64)
            .to_vec()
    };
    Bars {
        title: "Peak memory of a training step".into(),
        axis: "peak memory".into(),
        unit: Unit::Bytes,
        parts: [
            "parameters",
            "Adam's state",
            "buckets of gradients",
            "activations, outputs and their gradients",
        ]
        .map(str::to_owned)
        .to_vec(),
        members: members.map(|device| device.device.clone()).collect(),
        groups: measured
            .iter()
            .map(|Measured { method, devices, .. }| Group {
                name: method.to_string(),
                values: devices.iter().map(parts).collect(),
            })
            .collect(),
    }
}
