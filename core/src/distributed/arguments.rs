//! What collectives refuse before anything is exchanged.

use super::device::Backend;
use super::process_group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::ReduceOp;
use c10d_sys::tensor::is_strided_view;
use tch::Tensor;

impl ProcessGroup {
    pub(super) fn check_rank(&self, what: &str, rank: usize) -> Result<()> {
        if rank < self.world_size() {
            return Ok(());
        }
        Err(Error::Argument {
            what: what.into(),
            found: format!("rank {rank}"),
            expected: format!("a rank below the world size, {}", self.world_size()),
        })
    }

    pub(super) fn check_peer(&self, what: &str, rank: usize) -> Result<()> {
        self.check_rank(what, rank)?;
        if rank != self.rank() {
            return Ok(());
        }
        Err(Error::Argument {
            what: what.into(),
            found: format!("rank {rank}, this rank itself"),
            expected: "another rank".into(),
        })
    }

    /// For collectives, gloo copies CUDA tensors to the CPU; for point-to-point messages it does
    /// not.
    pub(super) fn check_message(&self, tensor: &Tensor) -> Result<()> {
        if self.backend() == Backend::Gloo && tensor.device().is_cuda() {
            return Err(Error::Argument {
                what: "the tensor".into(),
                found: format!("on {:?}, with gloo", tensor.device()),
                expected: "on the CPU, because gloo sends no CUDA tensors".into(),
            });
        }
        check_contiguous(tensor)
    }
}

/// The backends only see a tensor's first element and the number of elements. For a view with gaps,
/// gloo would exchange the elements in the gaps without an error, in Python too.
pub(super) fn check_contiguous(tensor: &Tensor) -> Result<()> {
    if !is_strided_view(tensor) {
        return Ok(());
    }
    Err(Error::Argument {
        what: "the tensor".into(),
        found: format!("a view of {:?} with the strides {:?}", tensor.size(), tensor.stride()),
        expected: "contiguous: exchange `tensor.contiguous()`".into(),
    })
}

/// On a mean of integers, gloo fails after the sum, and the group can no longer be used.
pub(super) fn check_reduction(tensor: &Tensor, op: ReduceOp) -> Result<()> {
    let kind = tensor.f_kind().map_err(Error::tensor("kind"))?;
    if op == ReduceOp::Avg && !tensor.is_floating_point() && !tensor.is_complex() {
        return Err(Error::Argument {
            what: "ReduceOp::Avg of a tensor".into(),
            found: format!("of {kind:?}"),
            expected: "of floating-point numbers: use the sum and divide it".into(),
        });
    }
    check_contiguous(tensor)
}
