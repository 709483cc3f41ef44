//! A sampler that takes the number of visible devices for the number of processes.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example wrong_world_size
//! ```

use anyhow::Result;
use tch::{Kind, Tensor};
use tch_parallel::data::{DistributedSampler, Sampler, Shard};
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

const SAMPLES: usize = 60_000;

/// What `torch.cuda.device_count()` would say on a machine with four GPUs.
const VISIBLE_DEVICES: usize = 4;

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: count
    for world_size in [group.world_size(), VISIBLE_DEVICES] {
        let shard = Shard::new(group.rank(), world_size)?;
        let indices = DistributedSampler::new(shard, 42).indices(SAMPLES, 0)?;

        let mut seen = vec![0i64; SAMPLES];
        indices.iter().for_each(|&index| seen[index] = 1);
        let mut seen = Tensor::from_slice(&seen);
        group.all_reduce(&mut seen, ReduceOp::Max)?;

        if group.rank() == 0 {
            println!(
                "{} processes, a sampler for {world_size}: {} of {SAMPLES} samples are trained on, \
                 in {} steps of 128",
                group.world_size(),
                seen.sum(Kind::Int64).int64_value(&[]),
                indices.len().div_ceil(128),
            );
        }
    }
    // ANCHOR_END: count
    Ok(())
}
