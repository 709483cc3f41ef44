//! Checks one exercise on two ranks: `exercises 7`, which `cargo xtask exercise 7` runs.

use anyhow::Context;
use exercises::prelude::*;

fn main() -> Result<()> {
    let number: usize = std::env::args().nth(1).context("no number is given")?.parse()?;
    let checks = exercises::checks!(exercises);
    let check = checks.get(number.wrapping_sub(1)).context("no exercise has this number")?;
    spawn(2, |_| {
        tch::set_num_threads(1);
        check(&init_process_group(options())?)
    })?;
    println!("Exercise {number} passes.");
    Ok(())
}
