//! The toy data set of bobondemon's "Distributed Data Parallel and Its Pytorch Example".

use anyhow::{Result, ensure};
use tch::Tensor;
use tch_parallel::data::Dataset;

/// The whole numbers from `start` up to, but not including, `end`.
#[derive(Debug)]
pub struct SimpleDataset {
    start: usize,
    end: usize,
}

impl SimpleDataset {
    /// Refuses an empty range.
    pub fn new(start: usize, end: usize) -> Result<Self> {
        ensure!(
            start < end,
            "there are no numbers from {start} up to {end}; expected at least one"
        );
        Ok(SimpleDataset { start, end })
    }
}

impl Dataset for SimpleDataset {
    type Batch = Tensor;

    fn len(&self) -> usize {
        self.end - self.start
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> tch_parallel::Result<Tensor> {
        let numbers: Vec<i64> = indices.iter().map(|index| (index + self.start) as i64).collect();
        Ok(Tensor::from_slice(&numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_i_is_i_plus_start() {
        let dataset = SimpleDataset::new(10, 14).unwrap();
        assert_eq!(dataset.len(), 4);
        assert_eq!(dataset.batch(&[3, 0], 0).unwrap(), Tensor::from_slice(&[13i64, 10]));
    }

    #[test]
    fn an_empty_range_is_refused() {
        let error = SimpleDataset::new(4, 4).unwrap_err().to_string();
        assert_eq!(error, "there are no numbers from 4 up to 4; expected at least one");
    }
}
