//! The rank in the job taken for the rank on the host: right on one host, wrong on two.
//!
//! Two hosts are played by two launchers on one, each in a terminal of its own:
//!
//! ```text
//! cargo build --release -p tch-parallel-launch -p tch-parallel --examples --bins
//! two_hosts="target/release/launch --nnodes 2 --master-addr 127.0.0.1 -n 2"
//! $two_hosts --node-rank 0 target/release/examples/global_rank_as_device
//! $two_hosts --node-rank 1 target/release/examples/global_rank_as_device
//! ```

use anyhow::{Context, Result};
use tch_parallel::distributed::ProcessGroup;

fn main() -> Result<()> {
    // ANCHOR: devices
    let node =
        std::env::var("GROUP_RANK").context("start it with launch, which sets GROUP_RANK")?;
    let group = ProcessGroup::from_env()?;
    // Each of the two hosts is to have two GPUs, cuda:0 and cuda:1.
    let verdict = if group.rank() < 2 { "there is one" } else { "there is none" };
    println!(
        "rank {}, on node {node}: by local rank cuda:{}; by rank cuda:{}, and {verdict}",
        group.rank(),
        group.local_rank(),
        group.rank(),
    );
    // ANCHOR_END: devices
    Ok(group.barrier()?)
}
