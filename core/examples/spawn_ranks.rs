//! A program that starts its ranks itself, as `mp.spawn` does in PyTorch's ImageNet example.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example spawn_ranks
//! ```

use anyhow::{Result, ensure};
use std::env;
use std::net::TcpListener;
use std::process::Command;
use tch_parallel::distributed::ProcessGroup;

// ANCHOR: numbers
/// This node is the first and only one.
const NODES: usize = 1;
const NODE_RANK: usize = 0;
const GPUS_PER_NODE: usize = 4;

/// For the whole node, as in `main.py -b 256 -j 6`.
const BATCH_SIZE: usize = 256;
const WORKERS: usize = 6;
// ANCHOR_END: numbers

fn main() -> Result<()> {
    if env::var_os("RANK").is_some() {
        return main_worker();
    }
    // ANCHOR: spawn
    // Port 0 means: any that is free. Rank 0 opens it again.
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut ranks = Vec::new();
    for gpu in 0..GPUS_PER_NODE {
        let mut rank = Command::new(env::current_exe()?);
        rank.env("WORLD_SIZE", (NODES * GPUS_PER_NODE).to_string())
            .env("RANK", (NODE_RANK * GPUS_PER_NODE + gpu).to_string())
            .env("LOCAL_RANK", gpu.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", port.to_string());
        ranks.push(rank.spawn()?);
    }
    for mut rank in ranks {
        let status = rank.wait()?;
        ensure!(status.success(), "a rank ended with {status}");
    }
    // ANCHOR_END: spawn
    Ok(())
}

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
