//! Several data sets as one.

use super::dataset::{Dataset, check_index, check_rows};
use crate::{Result, Tensors, check};
use tch::Tensor;
use tch_parallel_base::tensors::{fill, list};

/// Data sets one after the other, as one: `torch.utils.data.ConcatDataset`.
///
/// Data sets of different types go into a `Vec<Arc<dyn Dataset<Batch = B>>>`. In a batch, the first dimension of each
/// tensor must be the samples asked for, one row each: a batch of samples from several data sets is put together along
/// it. Other values, such as [`Shared`](tch_parallel_base::Shared) ones, come from its first data set only. Data sets
/// that leave damaged samples out of a batch are not supported.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::data::{ConcatDataset, Dataset, TensorDataset};
///
/// let tens = TensorDataset::new(Tensor::from_slice(&[10, 20, 30]))?;
/// let hundreds = TensorDataset::new(Tensor::from_slice(&[100, 200]))?;
/// let all = ConcatDataset::new([tens, hundreds])?;
/// assert_eq!(all.len(), 5);
/// assert_eq!(all.batch(&[4, 0, 3, 1], 0)?, Tensor::from_slice(&[200, 10, 100, 20]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConcatDataset<D> {
    datasets: Vec<D>,
    /// Where each data set ends.
    cumulative_sizes: Vec<usize>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// Puts data sets one after the other.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if there are none.
    pub fn new(datasets: impl Into<Vec<D>>) -> Result<Self> {
        let datasets = datasets.into();
        check(!datasets.is_empty(), "the number of data sets", 0, "at least 1")?;
        let ends = datasets.iter().scan(0, |end, dataset| {
            *end += dataset.len();
            Some(*end)
        });
        Ok(Self { cumulative_sizes: ends.collect(), datasets })
    }

    /// The data sets.
    pub fn datasets(&self) -> &[D] {
        &self.datasets
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Batch = D::Batch;

    fn len(&self) -> usize {
        self.cumulative_sizes.last().copied().unwrap_or(0)
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        // For each data set, its indices and their places in the batch.
        let mut parts = vec![(Vec::new(), Vec::new()); self.datasets.len()];
        for (place, &index) in indices.iter().enumerate() {
            check_index(index, self.len())?;
            let dataset = self.cumulative_sizes.partition_point(|&end| end <= index);
            let begin = if dataset == 0 { 0 } else { self.cumulative_sizes[dataset - 1] };
            parts[dataset].0.push(index - begin);
            parts[dataset].1.push(place);
        }
        let parts = parts.into_iter().enumerate().filter(|(_, (indices, _))| !indices.is_empty());
        let batches = parts.map(|(number, (indices, places))| {
            Ok(Part { number, batch: self.datasets[number].batch(&indices, epoch)?, places })
        });
        let mut batches = batches.collect::<Result<Vec<_>>>()?;
        match batches.len() {
            0 => self.datasets[0].batch(&[], epoch),
            1 => Ok(batches.swap_remove(0).batch),
            _ => concatenated(&batches),
        }
    }
}

/// What one of the data sets contributes to a batch.
struct Part<B> {
    number: usize,
    batch: B,
    /// Where in the whole batch its rows belong.
    places: Vec<usize>,
}

/// The rows of all parts, each in its place.
fn concatenated<B: Tensors>(parts: &[Part<B>]) -> Result<B> {
    let places = parts.iter().flat_map(|part| &part.places).map(|&place| place as i64);
    // Where in the parts the row for each place lies.
    let order = Tensor::f_from_slice(&places.collect::<Vec<_>>())?.f_argsort(0, false)?;
    let tensors_of_parts: Vec<Vec<Tensor>> = parts.iter().map(|part| list(&part.batch)).collect();
    for (part, tensors) in parts.iter().zip(&tensors_of_parts) {
        let rows = part.places.len();
        let expected = format_args!("{}, as in the others", tensors_of_parts[0].len());
        let what = format_args!("the number of tensors in a batch of data set {}", part.number);
        check(tensors.len() == tensors_of_parts[0].len(), what, tensors.len(), expected)?;
        check_rows(tensors, rows, part.number)?;
    }
    let tensors = (0..tensors_of_parts[0].len()).map(|number| {
        let of_parts: Vec<_> = tensors_of_parts.iter().map(|tensors| &tensors[number]).collect();
        let rows = Tensor::f_cat(&of_parts, 0)?;
        Ok(rows.f_index_select(0, &order.f_to(rows.device())?)?)
    });
    Ok(fill(&parts[0].batch, tensors.collect::<Result<Vec<_>>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TensorDataset, loader::tests::Made};
    use std::sync::Arc;
    use tch::Kind;

    type Pairs = TensorDataset<(Tensor, [Tensor; 1])>;

    /// The numbers of the range, and their squares.
    fn pairs(start: i64, end: i64) -> Pairs {
        let numbers = Tensor::arange_start(start, end, tch::kind::INT64_CPU);
        TensorDataset::new((numbers.shallow_clone(), [numbers.square()])).unwrap()
    }

    #[test]
    fn a_batch_of_several_data_sets_keeps_the_order_asked_for() {
        let all = ConcatDataset::new([pairs(0, 3), pairs(3, 3), pairs(3, 7)]).unwrap();
        assert_eq!(all.len(), 7);
        for indices in [&[6usize, 0, 3, 2, 6][..], &[4, 3], &[0], &[]] {
            let (numbers, [squares]) = all.batch(indices, 0).unwrap();
            let expected: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
            let expected = Tensor::from_slice(&expected).to_kind(Kind::Int64);
            assert_eq!((numbers, squares), (expected.shallow_clone(), expected.square()));
        }
    }

    #[test]
    fn data_sets_of_different_types_can_be_joined() {
        let later: Arc<dyn Dataset<Batch = (Tensor, [Tensor; 1])>> =
            Arc::new(crate::Subset::new(pairs(0, 9), [8, 7]).unwrap());
        let all = ConcatDataset::new([Arc::new(pairs(0, 2)), later]).unwrap();
        assert_eq!(all.batch(&[3, 1], 0).unwrap().0, Tensor::from_slice(&[7i64, 1]));
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        let error = ConcatDataset::<Pairs>::new([]).unwrap_err().to_string();
        assert_eq!(error, "the number of data sets is 0, but must be at least 1");
        let error = ConcatDataset::new([pairs(0, 3)]).unwrap().batch(&[3], 0).unwrap_err();
        assert_eq!(error.to_string(), "an index is 3, but must be below the length, 3");
    }

    #[test]
    fn a_batch_whose_rows_are_not_its_samples_is_not_joined() {
        let batch = |_: &[usize], _: u64| Ok(Tensor::zeros([1], tch::kind::FLOAT_CPU));
        let all = ConcatDataset::new([(); 2].map(|()| Made { len: 4, batch })).unwrap();
        assert!(all.batch(&[0, 1], 0).is_ok());
        let error = all.batch(&[0, 1, 4], 0).unwrap_err().to_string();
        let expected = "a tensor in a batch of data set 0 is of shape [1], but must be [2, …], a row for each sample \
                        asked for";
        assert_eq!(error, expected);
    }
}
