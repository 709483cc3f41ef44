//! The interface between data and loader.

use std::sync::Arc;

use tch::{Device, TchError, Tensor};

use crate::{Error, Result, Tensors};

/// A set of samples numbered from 0. `torch.utils.data.Dataset`
///
/// It returns whole batches (PyTorch's `__getitems__` and `collate_fn` in one), because a data set
/// in memory can write a batch into one tensor, without a tensor per sample. A data set whose
/// samples are expensive to read can spread a batch over the loader's worker threads with rayon's
/// `indices.par_iter()`.
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
    type Batch: Batch;

    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of `indices`, in this order, as one batch.
    ///
    /// A data set that augments its samples seeds a generator with its own seed, `epoch` and the
    /// index. Then every epoch shows another version of a sample, which does not depend on the
    /// thread or the batch. Other data sets ignore `epoch`.
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

/// What worker threads pass to the training loop, and the training loop to a device: any
/// [`Tensors`] that are `Send`, so tensors, tuples and vectors of them, and your own structs that
/// implement it.
pub trait Batch: Tensors + Send + 'static {
    /// Copies the batch into page-locked memory, from which copies to a GPU are faster and
    /// asynchronous. `tensor.pin_memory()`
    ///
    /// # Errors
    /// [`Error::Tensor`] if there is no GPU.
    fn pin_memory(self) -> Result<Self> {
        // What `Tensor::pin_memory` calls, without the warning that libtorch prints each time
        // because tch names a device. The index does not matter: pinned memory works for every GPU.
        replace(self, "pin_memory", |tensor| tensor.f_internal_pin_memory(Device::Cuda(0)))
    }

    /// Moves the batch to `device`. A copy from pinned memory does not block: work queued on the
    /// device later waits for it. `tensor.to(device, non_blocking=True)`
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device does not exist, or runs out of memory.
    fn to_device(self, device: Device) -> Result<Self> {
        let (non_blocking, copy) = (true, false);
        replace(self, "to_device", |tensor| {
            tensor.f_to_device_(device, tensor.kind(), non_blocking, copy)
        })
    }
}

impl<T: Tensors + Send + 'static> Batch for T {}

/// Replaces each tensor, up to the first error.
pub(super) fn replace<T: Tensors>(
    mut tensors: T,
    operation: &'static str,
    other: impl Fn(&Tensor) -> Result<Tensor, TchError>,
) -> Result<T> {
    let mut result = Ok(());
    let mut replace = |tensor: &mut Tensor| {
        if result.is_ok() {
            result = other(tensor).map(|other| *tensor = other);
        }
    };
    tensors.visit(&mut replace);
    tensors.visit_replicated(&mut replace);
    result.map_err(Error::tensor(operation))?;
    Ok(tensors)
}
