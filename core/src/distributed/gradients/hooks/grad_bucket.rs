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

/// Views of the parameters' gradients in a bucket's buffer as the reducer lays it out: in the strides of each dense
/// parameter. [`GradBucket::gradients`] takes them all for contiguous, as in PyTorch.
pub(crate) fn gradients_in(buffer: &Tensor, parameters: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut start = 0;
    let gradient = |parameter: &Tensor| {
        let (size, stride) = (parameter.size(), parameter.stride());
        let numel = size.iter().product::<i64>();
        let part = buffer.f_narrow(0, start, numel)?;
        start += numel;
        let mut dims: Vec<_> = stride.iter().zip(&size).filter(|(_, size)| **size != 1).collect();
        dims.sort();
        match dims.into_iter().try_fold(1, |len, (own, size)| (*own == len).then_some(len * size)) {
            Some(_) => Ok(part.f_as_strided(&size, &stride, None)?),
            None => Ok(part.f_view(&size[..])?),
        }
    };
    parameters.iter().map(gradient).collect()
}
