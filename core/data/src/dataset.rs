//! The interface between data and loader.

use crate::{Error, Result, Tensors, check};
use std::sync::Arc;
use tch::Tensor;

/// A set of samples numbered from 0. `torch.utils.data.Dataset`
///
/// It returns whole batches (PyTorch's `__getitems__` and `collate_fn` in one), because a data set in memory can write
/// a batch into one tensor, without a tensor per sample. A data set whose samples are expensive to read can spread a
/// batch over the loader's worker threads with rayon's `indices.par_iter()`.
///
/// ```
/// use tch::Tensor;
/// use tch_parallel::{Result, data::Dataset};
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Batch = Tensor;
///
///     fn len(&self) -> usize {
///         10
///     }
///
///     fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Tensor> {
///         let squares: Vec<i64> = indices.iter().map(|&i| (i * i) as i64).collect();
///         Ok(Tensor::from_slice(&squares))
///     }
/// }
///
/// assert_eq!(Squares.batch(&[3, 1], 0)?, Tensor::from_slice(&[9i64, 1]));
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[doc(alias = "collate_fn")]
pub trait Dataset: Send + Sync {
    /// The input of a training step; `(Tensor, Tensor)` for images with labels.
    type Batch: Tensors + Send + 'static;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of `indices`, in this order, as one batch.
    ///
    /// A data set that augments its samples seeds a generator with its own seed, `epoch` and the index: every epoch
    /// shows another version of a sample, whatever the thread or the batch. Other data sets ignore `epoch`.
    ///
    /// Several worker threads call it at the same time.
    ///
    /// # Errors
    /// Whatever prevents the batch; the training loop gets the error in place of the batch.
    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Self::Batch>;
}

/// Several loaders can share one data set.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Batch = D::Batch;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        (**self).batch(indices, epoch)
    }
}

pub(super) fn check_index(index: usize, len: usize) -> Result<()> {
    check(index < len, "an index", index, format_args!("below the length, {len}"))
}

/// Checks that each tensor in a batch of data set `number` has `rows` rows.
pub(super) fn check_rows(tensors: &[Tensor], rows: usize, number: usize) -> Result<()> {
    let is_other = |tensor: &&Tensor| tensor.size().first() != Some(&(rows as i64));
    tensors.iter().find(is_other).map_or(Ok(()), |tensor| {
        let what = format!("a tensor in a batch of data set {number}");
        let expected = format!("[{rows}, …], a row for each sample asked for");
        Err(Error::argument(what, format!("of shape {:?}", tensor.size()), expected))
    })
}

/// Replaces each tensor, up to the first error.
pub(super) fn replace<T: Tensors, E>(
    mut tensors: T,
    other: impl Fn(&Tensor) -> Result<Tensor, E>,
) -> Result<T, E> {
    let mut result = Ok(());
    let mut replace = |tensor: &mut Tensor| {
        if result.is_ok() {
            result = other(tensor).map(|other| *tensor = other);
        }
    };
    tensors.visit(&mut replace);
    tensors.visit_replicated(&mut replace);
    result.map(|()| tensors)
}
