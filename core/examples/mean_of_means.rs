//! The mean over all ranks: of the ranks' means, of the padded shares, and the right one.
//!
//! ```text
//! cargo launch -n 5 -- cargo run -rq -p tch-parallel --example mean_of_means
//! ```

use anyhow::Result;
use tch::Tensor;
use tch_parallel::data::{DistributedSampler, Sampler};
use tch_parallel::distributed::{AverageMeter, ProcessGroup, ReduceOp};

fn main() -> Result<()> {
    let group = ProcessGroup::from_env()?;
    // ANCHOR: means
    // The numbers 0 to 23, whose mean is 11.5, cut into pieces: the last one is shorter.
    let pieces: Vec<usize> = (0..24).collect();
    let piece = pieces.chunks(24usize.div_ceil(group.world_size())).nth(group.rank());
    report(&group, "consecutive pieces", piece.unwrap_or_default())?;

    let in_order = DistributedSampler { shuffle: false, ..DistributedSampler::new(&group, 0) };
    report(&group, "DistributedSampler", &in_order.indices(24, 0)?)?;

    let drop_last = DistributedSampler { drop_last: true, ..in_order };
    report(&group, "DistributedSampler, drop_last", &drop_last.indices(24, 0)?)?;
    // ANCHOR_END: means
    Ok(())
}

// ANCHOR: report
fn report(group: &ProcessGroup, what: &str, numbers: &[usize]) -> Result<()> {
    let mut meter = AverageMeter::default();
    numbers.iter().for_each(|&number| meter.update(number as f64, 1));
    let mut mean_of_means = Tensor::from(meter.avg());
    group.all_reduce(&mut mean_of_means, ReduceOp::Sum)?;
    let mean_of_means = f64::try_from(&mean_of_means)? / group.world_size() as f64;

    let mean = meter.all_reduce(group)?;
    if group.rank() == 0 {
        println!("{what:30} mean of means {mean_of_means:5.2}, sum over count {mean:5.2}");
    }
    Ok(())
}
// ANCHOR_END: report
