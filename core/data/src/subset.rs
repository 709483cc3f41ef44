//! Parts of a data set.

use super::dataset::{Dataset, check_index};
use crate::{Error, Result, check};
use std::sync::Arc;

/// Some samples of a data set, as a data set: `torch.utils.data.Subset`.
///
/// Sample `i` is the data set's `indices[i]`, which is what it sees: augmentation does not depend on the subset.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::data::{Dataset, Subset, TensorDataset};
///
/// let tens = TensorDataset::new(Tensor::from_slice(&[0i64, 10, 20, 30]))?;
/// let subset = Subset::new(tens, [3, 1])?;
/// assert_eq!(subset.batch(&[0, 1], 0)?, Tensor::from_slice(&[30i64, 10]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples of `indices`, in this order. Several subsets can share a data set through an `Arc`.
    ///
    /// # Errors
    /// [`Error::Argument`] for an index that is not below the data set's length.
    pub fn new(dataset: D, indices: impl Into<Vec<usize>>) -> Result<Self> {
        let (indices, len) = (indices.into(), dataset.len());
        indices.iter().try_for_each(|&index| check_index(index, len))?;
        Ok(Self { dataset, indices })
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The indices of this part's samples in the data set.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Batch = D::Batch;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        let of_part = |&index: &usize| check_index(index, self.len()).map(|()| self.indices[index]);
        let indices = indices.iter().map(of_part).collect::<Result<Vec<_>>>()?;
        self.dataset.batch(&indices, epoch)
    }
}

/// The sizes of the parts that [`random_split`] makes: made from an array of lengths or of fractions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lengths<const N: usize> {
    /// Numbers of samples, which add up to the data set's length.
    Samples([usize; N]),
    /// Parts of the whole, adding up to 1. Each is rounded down; the samples left over go to the first parts, one each.
    Fractions([f64; N]),
}

impl<const N: usize> From<[usize; N]> for Lengths<N> {
    fn from(lengths: [usize; N]) -> Self {
        Lengths::Samples(lengths)
    }
}

impl<const N: usize> From<[f64; N]> for Lengths<N> {
    fn from(fractions: [f64; N]) -> Self {
        Lengths::Fractions(fractions)
    }
}

impl<const N: usize> Lengths<N> {
    fn of(self, len: usize) -> Result<[usize; N]> {
        match self {
            Lengths::Samples(lengths) => {
                let sum = lengths.iter().try_fold(0usize, |sum, &part| sum.checked_add(part));
                let expected = format_args!("numbers that add up to {len}, the data set's length");
                check(sum == Some(len), "lengths", format_args!("{lengths:?}"), expected)?;
                Ok(lengths)
            }
            Lengths::Fractions(fractions) => {
                let in_range = fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction));
                let is_whole = (fractions.iter().sum::<f64>() - 1.0).abs() <= 1e-9;
                let mut lengths = fractions.map(|fraction| (len as f64 * fraction) as usize);
                let rest = len.checked_sub(lengths.iter().sum()).filter(|_| in_range && is_whole);
                let found = format_args!("{fractions:?}");
                let expected = "numbers from 0 to 1 that add up to 1";
                let rest = rest.ok_or_else(|| Error::argument("lengths", found, expected))?;
                (0..rest).for_each(|sample| lengths[sample % N] += 1);
                Ok(lengths)
            }
        }
    }
}

/// Divides a data set at random into parts without common samples: `torch.utils.data.random_split`.
///
/// The parts are Python's with `generator=torch.Generator().manual_seed(seed)`, in the same order, or for `None` those
/// that Python draws from the global generator. All ranks need the same seed; then they have the same parts, which a
/// [`DistributedSampler`](super::DistributedSampler) divides.
///
/// ```
/// use tch::{Tensor, kind::INT64_CPU};
/// use tch_parallel::data::{Dataset, TensorDataset, random_split};
///
/// let numbers = || TensorDataset::new(Tensor::arange(10, INT64_CPU));
/// let [train, test] = random_split(numbers()?, [0.75, 0.25], 42)?;
/// assert_eq!((train.len(), test.len()), (8, 2));
///
/// let [three, seven] = random_split(numbers()?, [3, 7], 42)?;
/// assert_eq!((three.len(), seven.len()), (3, 7));
/// assert_eq!(three.indices(), &train.indices()[..3]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for lengths that do not add up to the data set's, and for fractions that do not add up to 1.
pub fn random_split<D: Dataset, const N: usize>(
    dataset: D,
    lengths: impl Into<Lengths<N>>,
    seed: impl Into<Option<u64>>,
) -> Result<[Subset<Arc<D>>; N]> {
    let len = dataset.len();
    let lengths = lengths.into().of(len)?;
    let order =
        c10d_sys::random::randperm(len, len, seed.into()).map_err(Error::engine("randperm"))?;
    let (dataset, mut rest) = (Arc::new(dataset), order.into_iter());
    Ok(lengths.map(|length| {
        let indices = rest.by_ref().take(length).collect();
        Subset { dataset: Arc::clone(&dataset), indices }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDataset;
    use tch::Tensor;

    fn squares(len: i64) -> TensorDataset<Tensor> {
        TensorDataset::new(Tensor::arange(len, tch::kind::INT64_CPU).square()).unwrap()
    }

    #[test]
    fn a_sample_that_does_not_exist_is_refused() {
        let error = Subset::new(squares(3), [0, 3]).unwrap_err().to_string();
        assert_eq!(error, "an index is 3, but must be below the length, 3");
        let error = Subset::new(squares(3), [0]).unwrap().batch(&[1], 0).unwrap_err().to_string();
        assert_eq!(error, "an index is 1, but must be below the length, 1");
    }

    #[test]
    fn a_split_that_is_not_the_whole_is_refused() {
        let expected =
            "lengths is [3, 8], but must be numbers that add up to 10, the data set's length";
        assert_eq!(random_split(squares(10), [3, 8], 0).unwrap_err().to_string(), expected);
        for fractions in [[0.5, 0.4], [1.5, -0.5], [f64::NAN, 1.0]] {
            let error = random_split(squares(10), fractions, 0).unwrap_err().to_string();
            assert!(error.ends_with("must be numbers from 0 to 1 that add up to 1"), "{error}");
        }
        assert!(random_split::<_, 0>(squares(10), Lengths::Fractions([]), 0).is_err());
    }
}
