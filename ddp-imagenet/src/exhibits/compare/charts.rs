//! Speed, memory and utilisation as SVG files.

use super::runs::Measured;
use exhibit_kit::{comparison::device_bars, comparison::memory_bars, plot::Bars, plot::Unit};
use report::DeviceReport;

type Draw = fn(&[Measured]) -> Bars;

/// All charts, by the names of their files.
pub const CHARTS: [(&str, Draw); 3] =
    [("speed.svg", speed), ("memory.svg", memory), ("utilisation.svg", utilisation)];

fn speed(measured: &[Measured]) -> Bars {
    let axis = "images a second, the waiting for batches included";
    let groups = measured.iter().map(|found| (found.name.clone(), vec![found.images_per_second()]));
    Bars::undivided("Speed of a training", axis, "", &["all devices"], groups)
}

fn memory(measured: &[Measured]) -> Bars {
    let others = "buckets of gradients, memory of a batch";
    let names = ["optimizer's state", others, "activations and their gradients"];
    memory_bars(names, &trainings(measured))
}

fn utilisation(measured: &[Measured]) -> Bars {
    device_bars(
        "Utilisation in a training step",
        "share of a batch's time in which the device works",
        Unit::Other("%".into()),
        &[("utilisation", |device| 100.0 * (1.0 - device.idle_share))],
        &trainings(measured),
    )
}

fn trainings(measured: &[Measured]) -> Vec<(String, &[DeviceReport])> {
    measured.iter().map(|found| (found.name.clone(), &*found.devices)).collect()
}
