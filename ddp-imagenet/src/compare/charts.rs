//! Speed, memory and utilisation as SVG files.

use super::runs::Measured;
use report::DeviceReport;
use report::plot::{self, Bars, Group, Unit};
use std::fs;
use std::path::Path;
use tch_parallel::{Error, Result};

/// Makes the directory, before any work is done.
pub fn check_destination(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).map_err(Error::io("create directory", directory))
}

/// Writes speed.svg, memory.svg and utilisation.svg into the directory.
pub fn save(directory: &Path, measured: &[Measured]) -> Result<()> {
    for (name, chart) in [
        ("speed.svg", speed(measured)),
        ("memory.svg", memory(measured)),
        ("utilisation.svg", utilisation(measured)),
    ] {
        plot::save(directory.join(name), &plot::bars(&chart)?)?;
    }
    Ok(())
}

fn speed(measured: &[Measured]) -> Bars {
    Bars {
        title: "Speed of a training".into(),
        axis: "images a second, the waiting for batches included".into(),
        unit: Unit::Other(String::new()),
        parts: vec!["images/s".into()],
        members: vec!["all devices".into()],
        groups: measured
            .iter()
            .map(|found| Group {
                name: found.run.to_string(),
                values: vec![vec![found.images_per_second()]],
            })
            .collect(),
    }
}

fn memory(measured: &[Measured]) -> Bars {
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
            "optimizer's state",
            "buckets of gradients, memory of a batch",
            "activations and their gradients",
        ]
        .map(str::to_owned)
        .to_vec(),
        members: members(measured),
        groups: groups(measured, parts),
    }
}

fn utilisation(measured: &[Measured]) -> Bars {
    Bars {
        title: "Utilisation in a training step".into(),
        axis: "share of a batch's time in which the device works".into(),
        unit: Unit::Other("%".into()),
        parts: vec!["utilisation".into()],
        members: members(measured),
        groups: groups(measured, |device| vec![100.0 * (1.0 - device.idle_share)]),
    }
}

/// The devices, of the training that has most.
fn members(measured: &[Measured]) -> Vec<String> {
    let most = measured.iter().map(|found| &found.devices).max_by_key(|devices| devices.len());
    most.into_iter().flatten().map(|device| device.device.clone()).collect()
}

/// A group for each training; devices that it does not use have nothing.
fn groups(measured: &[Measured], parts: impl Fn(&DeviceReport) -> Vec<f64>) -> Vec<Group> {
    let devices = members(measured).len();
    let group = |found: &Measured| {
        let mut values: Vec<_> = found.devices.iter().map(&parts).collect();
        let nothing = vec![0.0; values.first().map_or(0, Vec::len)];
        values.resize(devices, nothing);
        Group { name: found.run.to_string(), values }
    };
    measured.iter().map(group).collect()
}
