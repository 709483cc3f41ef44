//! How many batches a rank gets, and what summing loss / batch size makes of a mean loss of 1.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example batches_per_rank
//! ```

use tch::{Device, Kind, Tensor};
use tch_parallel::Result;
use tch_parallel::data::{DataLoader, DistributedSampler, Shard, TensorDataset};

fn main() -> Result<()> {
    println!("samples  batch size  world size  batches  last batch  sum of 1 / batch size");
    for (samples, batch_size, world_sizes) in [
        (60_000, 128, &[1, 2, 4, 8][..]),
        (10_000, 128, &[1]),
        (8_000, 128, &[1, 2, 4, 8]),
        (10_000, 100, &[1, 2, 4]),
    ] {
        world_sizes.iter().try_for_each(|&ranks| report(samples, batch_size, ranks))?;
    }
    Ok(())
}

fn report(samples: i64, batch_size: usize, world_size: usize) -> Result<()> {
    let sampler = DistributedSampler::new(Shard::new(0, world_size)?, 42);
    let numbers = TensorDataset::new(Tensor::arange(samples, (Kind::Int64, Device::Cpu)))?;
    let loader = DataLoader::new(numbers, sampler, batch_size)?;
    let sizes = loader.epoch(0)?.map(|batch| Ok(batch?.size()[0])).collect::<Result<Vec<_>>>()?;
    let inverse: f64 = sizes.iter().map(|&size| 1.0 / size as f64).sum();
    let (batches, last) = (loader.len(), sizes.last().copied().unwrap_or_default());
    println!(
        "{samples:7}  {batch_size:10}  {world_size:10}  {batches:7}  {last:10}  {inverse:21.3}"
    );
    Ok(())
}
