//! Time, memory and utilisation of each device.

use super::runs::Measured;
use exhibit_kit::comparison::Cell::{self, Device, Training};
use exhibit_kit::comparison::device_table;
use report::Column::{self, Left, Right};
use report::{hours, size, table, thousands};

/// A row for each training, and below them a row for each of its devices.
pub fn tables_of(measured: &[Measured]) -> String {
    let source = |found: &Measured| -> String {
        if found.epoch_seconds.is_some() { "measured".into() } else { "projected".into() }
    };
    let headings = [
        Left("method"),
        Right("batch"),
        Right("batch time"),
        Right("fetch"),
        Right("epoch"),
        Left(""),
        Right("images/s"),
    ];
    let training = |found: &Measured| {
        vec![
            found.name.clone(),
            format!("{} x {}", found.devices.len(), found.images),
            format!("{:.3} s", found.batch_seconds),
            format!("{:.3} s", found.fetch_seconds),
            hours(found.epoch_seconds().round() as u64),
            source(found),
            format!("{:.1}", found.images_per_second()),
        ]
    };
    let trainings = table(&headings, &measured.iter().map(training).collect::<Vec<_>>());
    let devices: [(Column, Cell<Measured>); 5] = [
        (Left("method"), Training(|found| found.name.clone())),
        (Left("device"), Device(|device| device.device.clone())),
        (Right("peak memory"), Device(|device| size(device.peak))),
        (Right("in bytes"), Device(|device| thousands(device.peak))),
        (
            Right("utilisation"),
            Device(|device| format!("{:.0} %", 100.0 * (1.0 - device.idle_share))),
        ),
    ];
    format!("{trainings}\n{}", device_table(&devices, measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhibits::train_cifar::Method;
    use report::{DeviceReport, flag_value};

    /// S4.44 and S4.45: 22 minutes, and 5.
    #[test]
    fn the_articles_numbers_make_this_table() {
        let device = |index| DeviceReport {
            device: format!("cuda:{index}"),
            live: 0,
            peak: 10 << 30,
            parameters: 0,
            gradients: 0,
            optimizer_state: 0,
            idle_share: 0.01,
        };
        let article = |method: Method, images, devices, batches, batch_seconds| Measured {
            name: format!("{}, SGD", flag_value(&method)),
            method,
            images,
            devices: (0..devices).map(device).collect(),
            batches,
            batch_seconds,
            fetch_seconds: 0.0,
            epoch_seconds: None,
        };
        let text = tables_of(&[
            article(Method::Single, 240, 1, 209, 6.3),
            article(Method::DataParallel, 192, 4, 66, 5.0),
        ]);
        let rows: Vec<_> =
            text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>()).collect();
        let trainings: [Vec<_>; 2] = [
            "single, SGD 1 x 240 6.300 s 0.000 s 0:21:57 projected 38.1",
            "data-parallel, SGD 4 x 192 5.000 s 0.000 s 0:05:30 projected 153.6",
        ]
        .map(|row| row.split_whitespace().collect());
        assert_eq!(rows[..2], trainings);
        let devices = &rows[4..];
        let first = ["single,", "SGD", "cuda:0", "10.0", "GiB", "10,737,418,240", "99", "%"];
        assert_eq!(devices[0], first);
        assert_eq!(devices[4], ["cuda:3", "10.0", "GiB", "10,737,418,240", "99", "%"]);
    }
}
