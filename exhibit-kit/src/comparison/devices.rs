//! The devices of all trainings side by side, as bars.

use crate::plot::{Bars, Group, Unit};
use report::DeviceReport;

/// The result of one training of a comparison.
pub trait Measured {
    /// The training's name in charts.
    fn name(&self) -> String;

    /// The reports of its devices, in their order.
    fn devices(&self) -> &[DeviceReport];
}

/// A part of a device's bar: its name, and how long it is.
pub type Part<'a> = (&'a str, fn(&DeviceReport) -> f64);

/// A chart with a group of bars for each training and a bar for each device.
pub fn device_bars<M: Measured>(
    title: &str,
    axis: &str,
    unit: Unit,
    parts: &[Part<'_>],
    measured: &[M],
) -> Bars {
    // The devices of the training that has the most; the others get empty bars for those that they
    // do not use.
    let devices = measured.iter().map(M::devices).max_by_key(|devices| devices.len());
    let devices = devices.unwrap_or_default();
    let group = |training: &M| {
        let bar = |device| parts.iter().map(|(_, length)| length(device)).collect();
        let mut values: Vec<_> = training.devices().iter().map(bar).collect();
        values.resize(devices.len(), vec![0.0; parts.len()]);
        Group { name: training.name(), values }
    };
    Bars {
        title: title.into(),
        axis: axis.into(),
        unit,
        parts: parts.iter().map(|(name, _)| name.to_string()).collect(),
        members: devices.iter().map(|device| device.device.clone()).collect(),
        groups: measured.iter().map(group).collect(),
    }
}

/// A chart of the peak memory of each device. The arguments name the optimizer's state,
/// [`others`](DeviceReport::others) and [`activations`](DeviceReport::activations).
pub fn memory_bars<M: Measured>([state, others, activations]: [&str; 3], measured: &[M]) -> Bars {
    let parts: [Part<'_>; 4] = [
        ("parameters", |device| device.parameters as f64),
        (state, |device| device.optimizer_state as f64),
        (others, |device| device.others() as f64),
        (activations, |device| device.activations() as f64),
    ];
    device_bars("Peak memory of a training step", "peak memory", Unit::Bytes, &parts, measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Trained(&'static str, Vec<DeviceReport>);

    impl Measured for Trained {
        fn name(&self) -> String {
            self.0.into()
        }

        fn devices(&self) -> &[DeviceReport] {
            &self.1
        }
    }

    /// A training on one device, and one on two.
    fn trained() -> [Trained; 2] {
        let device = |index: usize| DeviceReport {
            device: format!("cpu:{index}"),
            live: 30 + index,
            peak: 100,
            parameters: 10,
            gradients: 10,
            optimizer_state: 5,
            idle_share: 0.5,
        };
        [Trained("single", vec![device(0)]), Trained("ddp", vec![device(0), device(1)])]
    }

    #[test]
    fn a_device_that_a_training_does_not_use_has_an_empty_bar() {
        let chart = memory_bars(["state", "buckets", "activations"], &trained());
        assert_eq!(chart.parts, ["parameters", "state", "buckets", "activations"]);
        assert_eq!(chart.members, ["cpu:0", "cpu:1"]);
        assert_eq!(chart.groups[0].values, [[10.0, 5.0, 5.0, 80.0], [0.0; 4]]);
        assert_eq!(chart.groups[1].values, [[10.0, 5.0, 5.0, 80.0], [10.0, 5.0, 6.0, 79.0]]);
    }
}
