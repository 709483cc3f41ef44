//! How many batches a rank gets, and what summing loss / batch size makes of a mean loss of 1.
//!
//! ```text
//! cargo run -rq -p tch-parallel --example batches_per_rank
//! ```

use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::data::{DataLoader, Dataset, DistributedSampler, Shard};

/// So many samples, each of which is its own number.
struct Numbers(usize);

impl Dataset for Numbers {
    type Batch = Tensor;

    fn len(&self) -> usize {
        self.0
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Tensor> {
        Ok(Tensor::from_slice(&indices.iter().map(|&index| index as i64).collect::<Vec<_>>()))
    }
}

fn main() -> Result<()> {
    println!("samples  batch size  world size  batches  last batch  sum of 1 / batch size");
    for (samples, batch_size, world_sizes) in [
        (60_000, 128, &[1, 2, 4, 8][..]),
        (10_000, 128, &[1]),
        (8_000, 128, &[1, 2, 4, 8]),
        (10_000, 100, &[1, 2, 4]),
    ] {
        for &world_size in world_sizes {
            report(samples, batch_size, world_size)?;
        }
    }
    Ok(())
}

fn report(samples: usize, batch_size: usize, world_size: usize) -> Result<()> {
    let sampler = DistributedSampler::new(Shard::new(0, world_size)?, 42);
    let loader = DataLoader::new(Numbers(samples), sampler, batch_size)?;
    let sizes = loader.epoch(0)?.map(|batch| Ok(batch?.size()[0])).collect::<Result<Vec<_>>>()?;
    let inverse: f64 = sizes.iter().map(|&size| 1.0 / size as f64).sum();
    let (batches, last) = (loader.len(), sizes.last().copied().unwrap_or_default());
    println!(
        "{samples:7}  {batch_size:10}  {world_size:10}  {batches:7}  {last:10}  {inverse:21.3}"
    );
    Ok(())
}
