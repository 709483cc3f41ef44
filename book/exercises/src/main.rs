//! Checks one exercise on two ranks: `exercises 7`, or `cargo xtask exercise 7`.

use anyhow::{Context, Result};
use std::time::Duration;
use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions, init_process_group, spawn};

/// How long a rank waits for one that has forgotten to take part.
const TIMEOUT: Option<Duration> = Some(Duration::from_secs(20));

fn main() -> Result<()> {
    let number: usize = std::env::args().nth(1).context("no number is given")?.parse()?;
    let checks = exercises::checks!(exercises);
    let check = number.checked_sub(1).and_then(|place| checks.get(place));
    let check = check.with_context(|| format!("there is no exercise {number}, only 1 to 21"))?;
    std::panic::set_hook(Box::new(|_| {}));
    let device = DeviceChoice::Cpu;
    let options = ProcessGroupOptions { device, timeout: TIMEOUT, ..Default::default() };
    spawn(2, |_| check(&init_process_group(options)?))?;
    println!("Exercise {number} passes.");
    Ok(())
}
