//! Which steps a `Meter` measures.

use report::{DeviceReport, Meter, Timing};
use std::time::Duration;
use tch::{Kind, Tensor, nn::VarStore};
use tch_parallel::{Devices, LogicalDevice, Result};

/// How long the rank waited in each step, as passed to the meter.
const WAITED: Duration = Duration::from_micros(1);

/// The report of a device on which each step allocates N bytes and takes N microseconds.
fn measured(device: LogicalDevice, steps: &[i64]) -> Result<DeviceReport> {
    let devices = Devices::new([device])?;
    let _on = device.guard()?;
    let (mut meter, mut timing) = (Meter::new(&devices), Timing::default());
    for bytes in steps {
        meter.begin_step()?;
        drop(Tensor::zeros([*bytes], (Kind::Uint8, device.into())));
        meter.end_step()?;
        timing.step_took(Duration::from_micros(*bytes as u64));
    }
    let mut reports = meter.reports(&VarStore::new(device.into()), 0, Some(WAITED), &timing)?;
    Ok(reports.remove(0))
}

#[test]
fn the_first_two_steps_do_not_count() -> Result<()> {
    let device = LogicalDevice::Cpu(0);
    assert_eq!(measured(device, &[5000, 4000, 100])?.peak, 100);
    let report = measured(device, &[5000, 4000, 100, 300, 200])?;
    assert_eq!(report.peak, 300);
    assert_eq!(report.idle_share, 1.0 / 200.0);
    Ok(())
}

#[test]
fn where_there_are_no_more_steps_the_last_counts_and_without_any_no_time() -> Result<()> {
    let device = LogicalDevice::Cpu(1);
    assert_eq!(measured(device, &[5000])?.peak, 5000);
    let report = measured(device, &[5000, 4000])?;
    assert_eq!((report.peak, report.idle_share), (4000, 1.0 / 4000.0));
    assert_eq!(measured(device, &[])?.idle_share, 0.0);
    Ok(())
}
