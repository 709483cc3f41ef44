//! What a loader needs to know about data.

use std::sync::Arc;

use tch::{Device, TchError, Tensor};

use crate::{Error, Result, Tensors};

/// A set of samples numbered from 0. `torch.utils.data.Dataset`
///
/// It makes whole batches (PyTorch's `__getitems__` and `collate_fn` in one), because a data set
/// that holds its samples in memory can write a batch into one tensor, without a tensor for every
/// sample. One whose samples are costly to read can spread a batch over the loader's worker
/// threads with rayon's `indices.par_iter()`.
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
    /// What a training step takes; for images with labels `(Tensor, Tensor)`.
    type Batch: Batch;

    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of `indices`, in this order, as one batch.
    ///
    /// A data set that augments its samples draws from a generator seeded with its own seed,
    /// `epoch` and the index: then every epoch shows a sample in another way, and it is the same
    /// way whatever thread and batch the sample falls into. Other data sets ignore `epoch`.
    ///
    /// Several worker threads call it at the same time.
    ///
    /// # Errors
    /// What keeps the data set from making the batch; the training loop gets it in the batch's place.
    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Self::Batch>;
}

/// Several loaders may share one data set.
impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    type Batch = D::Batch;

    fn len(&self) -> usize {
        (**self).len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        (**self).batch(indices, epoch)
    }
}

/// What travels together from a worker thread to a device: any [`Tensors`] that a thread can hand
/// over, so tensors, tuples and vectors of them, and structs of your own for which you implement that.
pub trait Batch: Tensors + Send + 'static {
    /// Copies the batch into page-locked memory, from which a GPU fetches it faster, and while
    /// the CPU goes on with other work. `tensor.pin_memory()`
    ///
    /// # Errors
    /// [`Error::Tensor`] where there is no GPU.
    fn pin_memory(self) -> Result<Self> {
        // What `Tensor::pin_memory` calls, without the warning that libtorch prints each time
        // because tch names a device. The number does not matter: pinned memory serves every GPU.
        replace(self, "pin_memory", |tensor| tensor.f_internal_pin_memory(Device::Cuda(0)))
    }

    /// Moves the batch to `device`. A copy from pinned memory does not block: work that is queued
    /// on the device later waits for it by itself. `tensor.to(device, non_blocking=True)`
    ///
    /// # Errors
    /// [`Error::Tensor`] if the device is not there, or its memory runs out.
    fn to_device(self, device: Device) -> Result<Self> {
        let (non_blocking, copy) = (true, false);
        replace(self, "to_device", |tensor| {
            tensor.f_to_device_(device, tensor.kind(), non_blocking, copy)
        })
    }
}

impl<T: Tensors + Send + 'static> Batch for T {}

/// Puts another tensor in the place of each, up to the first error.
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
