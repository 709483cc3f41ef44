//! Shuffling anywhere but in the sampler that shares the data out: duplicates and gaps.
//!
//! ```text
//! cargo launch -n 2 -- cargo run -rq -p tch-parallel --example shuffled_twice
//! ```

use anyhow::Result;
use tch::Tensor;
use tch_parallel::data::{DistributedSampler, RandomSampler, Sampler};
use tch_parallel::distributed::{ProcessGroup, ReduceOp};

const SAMPLES: usize = 24;

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: three
    let own_seed = 1111 + group.rank() as u64;
    let right = DistributedSampler::new(&group, 1111);
    let shuffled_before_sharing = DistributedSampler::new(&group, own_seed);
    let shuffled_without_sharing = RandomSampler::new(own_seed);

    report(&group, "one order, shared out", &right)?;
    report(&group, "each rank shuffles, then takes its share", &shuffled_before_sharing)?;
    report(&group, "each rank shuffles, and takes everything", &shuffled_without_sharing)?;
    // ANCHOR_END: three
    Ok(())
}

/// Counts over all ranks how often each sample is seen in an epoch.
fn report(group: &ProcessGroup, what: &str, sampler: &impl Sampler) -> Result<()> {
    let mut counts = [0i64; SAMPLES];
    sampler.indices(SAMPLES, 0)?.into_iter().for_each(|index| counts[index] += 1);
    let mut counts = Tensor::from_slice(&counts);
    group.all_reduce(&mut counts, ReduceOp::Sum)?;
    if group.rank() == 0 {
        let counts = Vec::<i64>::try_from(&counts)?;
        let seen = |times| counts.iter().filter(|&&count| count == times).count();
        println!("{what}\n  times seen: {counts:?}");
        println!("  never {}, once {}, twice {}", seen(0), seen(1), seen(2));
    }
    Ok(())
}
