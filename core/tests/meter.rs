//! Which steps a `Meter` measures.

use tch::{Kind, Tensor};
use tch_parallel::meter::Meter;
use tch_parallel::{Devices, LogicalDevice, Result};

/// The peak of a device on which each step allocates so many bytes at once.
fn peak(device: LogicalDevice, steps: &[i64]) -> Result<usize> {
    let devices = Devices::new(vec![device])?;
    let _on = device.guard()?;
    let mut meter = Meter::new(&devices);
    for bytes in steps {
        meter.begin_step()?;
        drop(Tensor::zeros([*bytes], (Kind::Uint8, device.into())));
        meter.end_step()?;
    }
    let vs = tch::nn::VarStore::new(device.into());
    Ok(meter.reports(&vs, 0, None)?[0].peak)
}

#[test]
fn the_first_two_steps_do_not_count() -> Result<()> {
    assert_eq!(peak(LogicalDevice::Cpu(0), &[5000, 4000, 100, 300, 200])?, 300);
    Ok(())
}

#[test]
fn where_there_are_no_more_steps_the_last_counts() -> Result<()> {
    assert_eq!(peak(LogicalDevice::Cpu(1), &[5000])?, 5000);
    assert_eq!(peak(LogicalDevice::Cpu(1), &[5000, 4000])?, 4000);
    assert_eq!(peak(LogicalDevice::Cpu(1), &[5000, 4000, 100])?, 100);
    Ok(())
}
