//! Checks one exercise on two ranks: `exercises 7`, which `cargo xtask exercise 7` runs.

use anyhow::Context;
use exercises::prelude::*;

fn main() -> Result<()> {
    let number: usize = std::env::args().nth(1).context("no number is given")?.parse()?;
    let checks = exercises::checks!(exercises);
    let check = number.checked_sub(1).and_then(|place| checks.get(place));
    let check = check.with_context(|| format!("there is no exercise {number}, only 1 to 21"))?;
    spawn(2, |_| {
        tch::set_num_threads(1);
        check(&init_process_group(options())?)
    })?;
    println!("Exercise {number} passes.");
    Ok(())
}
