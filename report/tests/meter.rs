//! Which steps a `Meter` measures.

use report::{DeviceReport, Meter};
use std::time::Duration;
use tch::nn::VarStore;
use tch::{Kind, Tensor};
use tch_parallel::{Devices, LogicalDevice, Result};

/// How long the rank waited in each step, as passed to the meter.
const WAITED: Duration = Duration::from_micros(1);

/// The report of a device on which each step allocates the given number of bytes at once, and how
/// long each step took.
fn measured(device: LogicalDevice, steps: &[i64]) -> Result<(DeviceReport, Vec<Duration>)> {
    let devices = Devices::new([device])?;
    let _on = device.guard()?;
    let mut meter = Meter::new(&devices);
    let mut took = Vec::new();
    for bytes in steps {
        meter.begin_step()?;
        drop(Tensor::zeros([*bytes], (Kind::Uint8, device.into())));
        took.push(meter.end_step()?);
    }
    let mut reports = meter.reports(&VarStore::new(device.into()), 0, Some(WAITED))?;
    Ok((reports.remove(0), took))
}

fn peak(device: LogicalDevice, steps: &[i64]) -> Result<usize> {
    Ok(measured(device, steps)?.0.peak)
}

#[test]
fn the_first_two_steps_do_not_count() -> Result<()> {
    let device = LogicalDevice::Cpu(0);
    assert_eq!(peak(device, &[5000, 4000, 100])?, 100);
    let (report, took) = measured(device, &[5000, 4000, 100, 300, 200])?;
    assert_eq!(report.peak, 300);
    let mean = took[2..].iter().sum::<Duration>() / 3;
    assert_eq!(report.idle_share, WAITED.div_duration_f64(mean));
    Ok(())
}

#[test]
fn where_there_are_no_more_steps_the_last_counts() -> Result<()> {
    let device = LogicalDevice::Cpu(1);
    assert_eq!(peak(device, &[5000])?, 5000);
    assert_eq!(peak(device, &[5000, 4000])?, 4000);
    Ok(())
}

#[test]
fn without_a_step_nothing_is_said_of_time() -> Result<()> {
    assert_eq!(measured(LogicalDevice::Cpu(2), &[])?.0.idle_share, 0.0);
    Ok(())
}
