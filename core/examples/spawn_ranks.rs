//! A program that starts its ranks itself, as PyTorch's ImageNet example does with `mp.spawn`. With a
//! number as its argument, the rank of that number fails.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example spawn_ranks
//! ```

use anyhow::{Result, ensure};
use tch_parallel::distributed::{ProcessGroup, spawn};

// ANCHOR: numbers
const GPUS_PER_NODE: usize = 4;

/// For the whole node, as in `main.py -b 256 -j 6`.
const BATCH_SIZE: usize = 256;
const WORKERS: usize = 6;
// ANCHOR_END: numbers

// ANCHOR: spawn
fn main() -> Result<()> {
    let failing = std::env::args().nth(1);
    spawn(GPUS_PER_NODE, |gpu| {
        ensure!(failing != Some(gpu.to_string()), "there is no GPU {gpu}");
        main_worker()
    })?;
    Ok(())
}
// ANCHOR_END: spawn

// ANCHOR: worker
fn main_worker() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    println!(
        "rank {} of {}: batch {} of {BATCH_SIZE}, {} of {WORKERS} workers",
        group.rank(),
        group.world_size(),
        BATCH_SIZE / GPUS_PER_NODE,
        WORKERS.div_ceil(GPUS_PER_NODE),
    );
    Ok(())
}
// ANCHOR_END: worker
