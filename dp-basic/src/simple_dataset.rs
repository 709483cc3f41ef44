//! The toy data set of bobondemon's "Distributed Data Parallel and Its Pytorch Example".

use anyhow::{Result, ensure};
use tch::Tensor;
use tch_parallel::data::Dataset;

/// As many of the whole numbers 0, 1, 2 … as it says.
#[derive(Debug)]
pub struct SimpleDataset(usize);

impl SimpleDataset {
    /// Refuses an empty data set.
    pub fn new(len: usize) -> Result<Self> {
        ensure!(len > 0, "there are no numbers from 0 up to {len}; expected at least one");
        Ok(SimpleDataset(len))
    }
}

impl Dataset for SimpleDataset {
    type Batch = Tensor;

    fn len(&self) -> usize {
        self.0
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> tch_parallel::Result<Tensor> {
        Ok(Tensor::from_slice(&indices.iter().map(|&index| index as i64).collect::<Vec<_>>()))
    }
}
