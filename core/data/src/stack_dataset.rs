//! Two data sets side by side.

use super::dataset::{Dataset, check_rows};
use crate::{Result, check};
use tch_parallel_base::tensors::list;

/// Two data sets side by side, each with a part of every sample: `torch.utils.data.StackDataset`. For more than two,
/// nest them.
///
/// In a batch, the first dimension of each tensor must be the samples asked for. A batch from which a data set has left
/// out damaged samples is an error.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::data::{Dataset, StackDataset, TensorDataset};
///
/// let numbers = TensorDataset::new(Tensor::from_slice(&[1, 2, 3]))?;
/// let squares = TensorDataset::new(Tensor::from_slice(&[1, 4, 9]))?;
/// let both = StackDataset::new(numbers, squares)?;
/// assert_eq!(both.batch(&[2, 0], 0)?, (Tensor::from_slice(&[3, 1]), Tensor::from_slice(&[9, 1])));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StackDataset<A, B> {
    datasets: (A, B),
}

impl<A: Dataset, B: Dataset> StackDataset<A, B> {
    /// Puts two data sets side by side.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if they have different lengths.
    pub fn new(first: A, second: B) -> Result<Self> {
        let (found, expected) = (second.len(), format_args!("{}, as of data set 0", first.len()));
        check(found == first.len(), "the length of data set 1", found, expected)?;
        Ok(Self { datasets: (first, second) })
    }
}

impl<A: Dataset, B: Dataset> Dataset for StackDataset<A, B> {
    type Batch = (A::Batch, B::Batch);

    fn len(&self) -> usize {
        self.datasets.0.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Self::Batch> {
        let (first, second) = &self.datasets;
        let batch = (first.batch(indices, epoch)?, second.batch(indices, epoch)?);
        check_rows(&list(&batch.0), indices.len(), 0)?;
        check_rows(&list(&batch.1), indices.len(), 1)?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TensorDataset, loader::tests::Made};
    use tch::{Tensor, kind::FLOAT_CPU};

    #[test]
    fn data_sets_that_do_not_fit_are_refused() {
        let rows = |len| TensorDataset::new(Tensor::ones([len], FLOAT_CPU)).unwrap();
        let error = StackDataset::new(rows(3), rows(2)).unwrap_err().to_string();
        assert_eq!(error, "the length of data set 1 is 2, but must be 3, as of data set 0");
        let batch = |_: &[usize], _: u64| Ok(Tensor::ones([1], FLOAT_CPU));
        let made = || Made { len: 3, batch };
        let both = StackDataset::new(rows(3), made()).unwrap();
        assert!(both.batch(&[2], 0).is_ok());
        let error = both.batch(&[2, 0], 0).unwrap_err().to_string();
        assert!(error.contains("data set 1 is of shape [1], but must be [2, …]"), "{error}");
        let other = StackDataset::new(made(), rows(3)).unwrap();
        let error = other.batch(&[2, 0], 0).unwrap_err().to_string();
        assert!(error.contains("data set 0 is of shape [1], but must be [2, …]"), "{error}");
    }
}
