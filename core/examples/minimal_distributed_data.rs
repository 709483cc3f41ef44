//! The first listing of bobondemon's article, with its own last lines: each rank's numbers, sorted.
//!
//! ```text
//! cargo launch -n 2 --tee 1 -- cargo run -rq -p tch-parallel --example minimal_distributed_data
//! ```

use anyhow::{Result, ensure};
use tch::Tensor;
use tch_parallel::data::{DataLoader, Dataset, DistributedSampler};
use tch_parallel::distributed::ProcessGroup;

struct SimpleDataset {
    start: i64,
    end: i64,
}

impl Dataset for SimpleDataset {
    type Batch = Tensor;

    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> tch_parallel::Result<Tensor> {
        let items: Vec<_> = indices.iter().map(|&index| index as i64 + self.start).collect();
        Ok(Tensor::from_slice(&items))
    }
}

fn main() -> Result<()> {
    // ===== Distributed settings
    let group = ProcessGroup::from_env()?;
    let device = group.local_rank();
    // ===== Data set, sampler, loader
    let dataset = SimpleDataset { start: 0, end: 4 * 6 };
    ensure!(dataset.start < dataset.end, "the data set is empty");
    let sampler = DistributedSampler { shuffle: false, ..DistributedSampler::new(&group, 1111) };
    println!("========== device:cpu:{device}");
    let data_parallel_dl = DataLoader::new(dataset, sampler, 4)?;
    // ===== Go through all data
    let mut arr = Vec::new();
    for sample_batch in data_parallel_dl.epoch(0)? {
        let numbers = Vec::<i64>::try_from(&sample_batch?)?;
        // The listing sleeps for up to a second here.
        println!("sleep 0.00; device:cpu:{device}\ttensor({})", row(&numbers, ", "));
        arr.extend(numbers);
    }
    arr.sort_unstable();
    println!("device:cpu:{device}\n{}", row(&arr, " "));
    Ok(())
}

/// Numbers in brackets, all of the same width, as PyTorch and NumPy print them.
fn row(numbers: &[i64], separator: &str) -> String {
    let width = numbers.iter().map(|number| number.to_string().len()).max().unwrap_or(0);
    format!("{numbers:width$?}").replace(", ", separator)
}
