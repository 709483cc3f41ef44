//! A collective that one rank does not call. The others wait for it until the timeout.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example lonely_collective
//! ```

use anyhow::Result;
use report::exit;
use std::time::Duration;
use tch_parallel::distributed::{AverageMeter, ProcessGroupOptions, init_process_group};

fn main() {
    exit(run)
}

fn run() -> Result<()> {
    // ANCHOR: lonely
    let timeout = Some(Duration::from_secs(5));
    let group = init_process_group(ProcessGroupOptions { timeout, ..Default::default() })?;
    let mut loss = AverageMeter::default();
    loss.update(1.0 + group.rank() as f64, 1);

    // Only rank 0 prints, so only rank 0 asks for the mean; but that takes every rank.
    if group.rank() == 0 {
        println!("mean loss: {}", loss.all_reduce(&group)?);
    }
    // ANCHOR_END: lonely
    // What rank 1 does meanwhile: work of its own, longer than rank 0 waits.
    println!("rank {} goes on", group.rank());
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}
