//! The same epoch number in every epoch, and so the same order: what comes of a forgotten `set_epoch` in PyTorch.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example forgotten_epoch
//! ```

use tch_parallel::{Result, data::DistributedSampler, data::Sampler, data::Shard};

fn main() -> Result<()> {
    // ANCHOR: epochs
    let sampler = DistributedSampler::new(Shard::new(0, 2)?, 42);
    println!("rank 0 of 2, 20 samples, the epoch passed on");
    for epoch in 0..3 {
        println!("  epoch {epoch}: {:?}", sampler.indices(20, epoch)?);
    }
    println!("always 0 passed instead");
    for epoch in 0..3 {
        println!("  epoch {epoch}: {:?}", sampler.indices(20, 0)?);
    }
    // ANCHOR_END: epochs
    Ok(())
}
