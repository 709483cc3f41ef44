//! A data set of tensors in memory: `torch.utils.data.TensorDataset`.

use super::dataset::{Dataset, replace};
use crate::{Error, Result, Tensors};
use std::sync::Mutex;
use tch::Tensor;
use tch_parallel_base::lock;

/// Tensors with the same number of rows: sample `i` is row `i` of each.
///
/// PyTorch's counterpart is `torch.utils.data.TensorDataset(*tensors)`.
///
/// ```
/// use tch::{Tensor, kind::{FLOAT_CPU, INT64_CPU}};
/// use tch_parallel::data::{DataLoader, SequentialSampler, TensorDataset};
///
/// let xs = Tensor::rand([10, 3], FLOAT_CPU);
/// let ys = Tensor::zeros([10], INT64_CPU);
/// let samples = TensorDataset::new((xs, ys))?;
/// for batch in DataLoader::new(samples, SequentialSampler, 5)?.epoch(0)? {
///     let (xs, ys) = batch?;
///     assert_eq!((xs.size(), ys.size()), (vec![5, 3], vec![5]));
/// }
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorDataset<T> {
    /// Several threads may read a tensor, but tch does not declare it `Sync`, hence the lock.
    tensors: Mutex<T>,
    len: usize,
}

impl<T: Tensors> TensorDataset<T> {
    /// Takes a tensor, or a tuple or vector of them, with at least one dimension.
    ///
    /// # Errors
    /// [`Error::Argument`] if their numbers of rows differ, if there are no tensors, or if one is
    /// [`Replicated`](tch_parallel_base::Replicated) and so cannot be divided.
    pub fn new(mut tensors: T) -> Result<Self> {
        let (mut sizes, mut replicated) = (Vec::new(), 0);
        tensors.visit_replicated(&mut |_| replicated += 1);
        tensors.visit(&mut |tensor| sizes.push(tensor.size()));
        let rows: Vec<_> = sizes.iter().map(|size| size.first()).collect();
        let can_divide = replicated == 0 && rows.iter().all(|other| *other == rows[0]);
        let len = rows.first().copied().flatten().filter(|_| can_divide);
        let found = format_args!("{sizes:?}");
        let expected =
            "one or more, with the same first dimension (the samples), and none Replicated";
        let len = *len.ok_or_else(|| Error::argument("the tensors' sizes", found, expected))?;
        Ok(TensorDataset { tensors: Mutex::new(tensors), len: len as usize })
    }
}

impl<T: Tensors + Send + 'static> Dataset for TensorDataset<T> {
    type Batch = T;

    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<T> {
        let tensors = lock(&self.tensors).shallow_clone();
        let indices: Vec<_> = indices.iter().map(|&index| index as i64).collect();
        let indices = Tensor::from_slice(&indices);
        Ok(replace(tensors, |tensor| tensor.f_index_select(0, &indices.f_to(tensor.device())?))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_of_different_length_are_refused() {
        let rows = |count| Tensor::zeros([count, 2], tch::kind::FLOAT_CPU);
        let error = TensorDataset::new((rows(3), rows(4))).unwrap_err().to_string();
        assert!(error.contains("[[3, 2], [4, 2]]"), "{error}");
        assert!(TensorDataset::new(Vec::<Tensor>::new()).is_err());
        assert!(TensorDataset::new(Tensor::from(1.0)).is_err());
        assert!(TensorDataset::new((rows(3), tch_parallel_base::Replicated(rows(3)))).is_err());
    }
}
