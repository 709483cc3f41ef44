//! The devices of all trainings side by side, as bars.

use crate::plot::{Bars, Group, Unit};
use report::DeviceReport;

/// A part of a device's bar: its name, and how long it is.
pub type Part<'a> = (&'a str, fn(&DeviceReport) -> f64);

/// A chart with a group of bars for each training, which has a name, and a bar for each of its devices.
pub fn device_bars(
    title: &str,
    axis: &str,
    unit: Unit,
    parts: &[Part<'_>],
    trainings: &[(String, &[DeviceReport])],
) -> Bars {
    // The devices of the training that has the most; the others get empty bars for those that they do not use.
    let devices = trainings.iter().map(|(_, own)| *own).max_by_key(|own| own.len());
    let devices = devices.unwrap_or_default();
    let group = |(name, own): &(String, &[DeviceReport])| {
        let bar = |device| parts.iter().map(|(_, length)| length(device)).collect();
        let mut values: Vec<_> = own.iter().map(bar).collect();
        values.resize(devices.len(), vec![0.0; parts.len()]);
        Group { name: name.clone(), values }
    };
    Bars {
        title: title.into(),
        axis: axis.into(),
        unit,
        parts: parts.iter().map(|(name, _)| name.to_string()).collect(),
        members: devices.iter().map(|device| device.device.clone()).collect(),
        groups: trainings.iter().map(group).collect(),
    }
}

/// A chart of the peak memory of each device, as in [`device_bars`]. `names` are those of the
/// optimizer's state, [`others`](DeviceReport::others) and [`activations`](DeviceReport::activations).
pub fn memory_bars(names: [&str; 3], trainings: &[(String, &[DeviceReport])]) -> Bars {
    let [state, others, activations] = names;
    let parts: [Part<'_>; 4] = [
        ("parameters", |device| device.parameters as f64),
        (state, |device| device.optimizer_state as f64),
        (others, |device| device.others() as f64),
        (activations, |device| device.activations() as f64),
    ];
    device_bars("Peak memory of a training step", "peak memory", Unit::Bytes, &parts, trainings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_a_training_does_not_use_has_an_empty_bar() {
        let device = |index: usize| DeviceReport {
            device: format!("cpu:{index}"),
            live: 30 + index,
            peak: 100,
            parameters: 10,
            gradients: 10,
            optimizer_state: 5,
            idle_share: 0.5,
        };
        let (one, two) = ([device(0)], [device(0), device(1)]);
        let trained = [("single".to_owned(), &one[..]), ("ddp".to_owned(), &two[..])];
        let chart = memory_bars(["state", "buckets", "activations"], &trained);
        assert_eq!(chart.parts, ["parameters", "state", "buckets", "activations"]);
        assert_eq!(chart.members, ["cpu:0", "cpu:1"]);
        assert_eq!(chart.groups[0].values, [[10.0, 5.0, 5.0, 80.0], [0.0; 4]]);
        assert_eq!(chart.groups[1].values, [[10.0, 5.0, 5.0, 80.0], [10.0, 5.0, 6.0, 79.0]]);
    }
}
