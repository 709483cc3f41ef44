//! Speed, memory and utilisation as SVG files.

use super::runs::Measured;
use exhibit_kit::comparison::{device_bars, memory_bars};
use exhibit_kit::plot::{self, Bars, Unit};
use report::DeviceReport;
use std::path::Path;
use tch_parallel::Result;

/// Writes speed.svg, memory.svg and utilisation.svg into the directory.
pub fn save(directory: &Path, measured: &[Measured]) -> Result<()> {
    let devices = measured.iter().map(|found| (found.name.clone(), &*found.devices));
    let trainings: Vec<_> = devices.collect();
    for (name, chart) in [
        ("speed.svg", speed(measured)),
        ("memory.svg", memory(&trainings)),
        ("utilisation.svg", utilisation(&trainings)),
    ] {
        report::save(directory.join(name), &plot::bars(&chart)?)?;
    }
    Ok(())
}

fn speed(measured: &[Measured]) -> Bars {
    let axis = "images a second, the waiting for batches included";
    let groups = measured.iter().map(|found| (found.name.clone(), vec![found.images_per_second()]));
    Bars::undivided("Speed of a training", axis, "", "images/s", &["all devices"], groups)
}

fn memory(trainings: &[(String, &[DeviceReport])]) -> Bars {
    let others = "buckets of gradients, memory of a batch";
    let names = ["optimizer's state", others, "activations and their gradients"];
    memory_bars(names, trainings)
}

fn utilisation(trainings: &[(String, &[DeviceReport])]) -> Bars {
    device_bars(
        "Utilisation in a training step",
        "share of a batch's time in which the device works",
        Unit::Other("%".into()),
        &[("utilisation", |device| 100.0 * (1.0 - device.idle_share))],
        trainings,
    )
}
