//! Which rank sees which samples: the toy of bobondemon's "Distributed Data Parallel and Its
//! Pytorch Example", with the metric of its appendix.

use crate::simple_dataset::SimpleDataset;
use anyhow::Result;
use report::println;
use std::{thread, time::Duration};
use tch::Device;
use tch_parallel::data::{DataLoader, DataLoaderOptions, DistributedSampler};
use tch_parallel::data::{RandomSampler, Sampler, SequentialSampler};
use tch_parallel::distributed::{AverageMeter, ProcessGroup};

/// Share the numbers 0, 1, 2 … out among the ranks, and average them over all ranks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic sampler                           one process sees all numbers
  launch -n 2 dp-basic sampler               two share them: the even and the odd ones
  launch -n 5 dp-basic sampler --drop-last   24 numbers on 5 ranks: four are left out")]
pub struct Args {
    /// Shuffle the numbers: --shuffle, or --shuffle=True as in the tutorial.
    #[arg(long)]
    shuffle: bool,
    /// Seed of the order of the samples, the same on every rank.
    #[arg(long, default_value_t = 1111)]
    seed: u64,
    /// Drop the numbers that cannot be shared out evenly, instead of repeating the first ones.
    #[arg(long)]
    drop_last: bool,
    /// Size of the data set.
    #[arg(long, default_value_t = 4 * 6)]
    len: usize,
    /// Batch size per rank.
    #[arg(long, default_value_t = 4)]
    batch_size: usize,
    /// Threads that load batches ahead; the order stays the same.
    #[arg(long, visible_alias = "num-workers", default_value_t = 2)]
    workers: usize,
    /// Do not sleep between batches.
    #[arg(long)]
    no_sleep: bool,
}

pub fn run(args: &Args) -> Result<()> {
    println!("shuffle={}", if args.shuffle { "True" } else { "False" });
    // ===== Distributed settings
    let group = ProcessGroup::from_env()?;
    let device = match group.device() {
        // There is only one CPU: its number here is the local rank.
        Device::Cpu => format!("cpu:{}", group.local_rank()),
        Device::Cuda(index) => format!("cuda:{index}"),
        other => format!("{other:?}"),
    };

    // ANCHOR: loader
    // ===== Data set, sampler, loader
    let dataset = SimpleDataset::new(args.len)?;
    println!("{:?}", (0..args.len).collect::<Vec<_>>());
    let Args { shuffle, seed, drop_last, batch_size, workers: num_workers, .. } = *args;
    let sampler: Box<dyn Sampler> = if group.world_size() > 1 {
        Box::new(DistributedSampler { shuffle, drop_last, ..DistributedSampler::new(&group, seed) })
    } else if shuffle {
        Box::new(RandomSampler::new(seed))
    } else {
        Box::new(SequentialSampler)
    };
    println!("========== device:{device}");
    let options = DataLoaderOptions { batch_size, num_workers, ..Default::default() };
    let loader = DataLoader::with_options(dataset, sampler, options)?;
    // ANCHOR_END: loader

    // ANCHOR: traverse
    // ===== Go through all data
    let mut seen = Vec::new();
    let mut average = AverageMeter::default();
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let seconds = if args.no_sleep { 0.0 } else { rand::random_range(0..100) as f64 / 100.0 };
        let numbers = Vec::<i64>::try_from(&batch)?;
        println!("sleep {seconds:.2}; device:{device}\ttensor({})", row(&numbers, ", "));
        numbers.iter().for_each(|&number| average.update(number as f64, 1));
        seen.extend(numbers);
        thread::sleep(Duration::from_secs_f64(seconds));
    }
    seen.sort_unstable();
    // A collective: every rank calls it and gets the average over all ranks.
    let average = average.all_reduce(&group)?;
    println!("device:{device}\t{}\tavg={average}", row(&seen, " "));
    // ANCHOR_END: traverse
    Ok(())
}

/// Numbers in brackets, all of the same width, as NumPy and PyTorch print them.
fn row(numbers: &[i64], separator: &str) -> String {
    let width = numbers.iter().map(|number| number.to_string().len()).max().unwrap_or(0);
    format!("{numbers:width$?}").replace(", ", separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_look_like_numpys() {
        assert_eq!(row(&[0, 11, 3], " "), "[ 0 11  3]");
        assert_eq!(row(&[7], ", "), "[7]");
        assert_eq!(row(&[], ", "), "[]");
    }
}
