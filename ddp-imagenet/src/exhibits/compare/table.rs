//! Time, memory and utilisation of each device.

use super::runs::Measured;
use report::Column::{self, Left, Right};
use report::comparison::Cell::{self, Device, Training};
use report::comparison::device_table;
use report::{hours, size, thousands};

/// A row for each training and device.
pub fn table_of(measured: &[Measured]) -> String {
    let source = |found: &Measured| -> String {
        if found.epoch_seconds.is_some() { "measured".into() } else { "projected".into() }
    };
    let columns: [(Column, Cell<Measured>); 11] = [
        (Left("method"), Training(|found| found.name.clone())),
        (Right("batch"), Training(|found| format!("{} x {}", found.devices.len(), found.images))),
        (Right("batch time"), Training(|found| format!("{:.3} s", found.batch_seconds))),
        (Right("fetch"), Training(|found| format!("{:.3} s", found.fetch_seconds))),
        (Right("epoch"), Training(|found| hours(found.epoch_seconds().round() as u64))),
        (Left(""), Training(source)),
        (Right("images/s"), Training(|found| format!("{:.1}", found.images_per_second()))),
        (Left("device"), Device(|device| device.device.clone())),
        (Right("peak memory"), Device(|device| size(device.peak))),
        (Right("in bytes"), Device(|device| thousands(device.peak))),
        (
            Right("utilisation"),
            Device(|device| format!("{:.0} %", 100.0 * (1.0 - device.idle_share))),
        ),
    ];
    device_table(&columns, measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhibits::train_cifar::Method;
    use report::DeviceReport;

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
            name: format!("{method}, SGD"),
            method,
            images,
            devices: (0..devices).map(device).collect(),
            batches,
            batch_seconds,
            fetch_seconds: 0.0,
            epoch_seconds: None,
        };
        let text = table_of(&[
            article(Method::Single, 240, 1, 209, 6.3),
            article(Method::DataParallel, 192, 4, 66, 5.0),
        ]);
        let rows: Vec<_> =
            text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>()).collect();
        let expected: [Vec<_>; 2] = [
            "single, SGD 1 x 240 6.300 s 0.000 s 0:21:57 projected 38.1 cuda:0 10.0 GiB 10,737,418,240 99 %",
            "data-parallel, SGD 4 x 192 5.000 s 0.000 s 0:05:30 projected 153.6 cuda:0 10.0 GiB 10,737,418,240 99 %",
        ]
        .map(|row| row.split_whitespace().collect());
        assert_eq!(rows[..2], expected);
        assert_eq!(rows[4], ["cuda:3", "10.0", "GiB", "10,737,418,240", "99", "%"]);
    }
}
