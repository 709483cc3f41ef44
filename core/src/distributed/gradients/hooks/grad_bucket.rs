//! The argument of a communication hook.

use crate::{Error, Result};
use tch::Tensor;

/// Gradients that are exchanged together, complete on this rank. `torch.distributed.GradBucket`
///
/// It lives as long as the hook's call, its tensors as long as they are kept. libtorch's errors are [`Error::Tensor`].
#[derive(Debug)]
pub struct GradBucket<'a> {
    pub(super) engine: &'a mut c10d_sys::GradBucket,
}

impl GradBucket<'_> {
    /// Its index among the buckets, from 0, which is also the order of exchange. The second forward
    /// pass of a training reorders the buckets. `bucket.index()`
    pub fn index(&self) -> usize {
        self.engine.index()
    }

    /// Whether it is the last bucket of this backward pass. `bucket.is_last()`
    pub fn is_last(&self) -> bool {
        self.engine.is_last()
    }

    /// All its gradients in one flat tensor. Not a copy: writing to it changes the bucket. `bucket.buffer()`
    pub fn buffer(&self) -> Result<Tensor> {
        self.engine.buffer().map_err(Error::engine("GradBucket::buffer"))
    }

    /// Replaces the buffer by another tensor, for a hook called with this bucket later. `bucket.set_buffer(tensor)`
    pub fn set_buffer(&mut self, buffer: &Tensor) -> Result<()> {
        self.engine.set_buffer(buffer).map_err(Error::engine("GradBucket::set_buffer"))
    }

    /// The gradient of each parameter, in the parameter's shape, as a view into the buffer. `bucket.gradients()`
    pub fn gradients(&self) -> Result<Vec<Tensor>> {
        self.engine.gradients().map_err(Error::engine("GradBucket::gradients"))
    }

    /// Its parameters, in the order of [`gradients`](Self::gradients). `bucket.parameters()`
    pub fn parameters(&self) -> Result<Vec<Tensor>> {
        self.engine.parameters().map_err(Error::engine("GradBucket::parameters"))
    }
}
