//! One bucket in a step of PowerSGD.

use super::PowerSgdOptions;
use super::low_rank::{Batch, LowRank, batches, factors};
use super::orthogonalize::orthogonalize;
use super::state::State;
use crate::Result;
use crate::distributed::hooks::GradBucket;
use crate::distributed::{ProcessGroup, ReduceOp};
use c10d_sys::arithmetic::div_number_;
use std::iter::once;
use tch::{TchError, Tensor};

/// What is computed before the bucket's first collective and needed afterwards.
pub(super) struct Exchange {
    index: usize,
    is_last: bool,
    buffer: Tensor,
    /// The gradients before the approximation; only with error feedback.
    original: Option<Tensor>,
    /// The gradients that are exchanged uncompressed: views into the buffer.
    uncompressed: Vec<Tensor>,
    compressed: Vec<LowRank>,
    /// The memory of all P, and of all Q: each is exchanged at once.
    memory: [Tensor; 2],
}

impl Exchange {
    /// Everything up to the first product, P = M Q.
    pub(super) fn prepare(state: &mut State, bucket: &GradBucket<'_>) -> Result<Exchange> {
        let (mut buffer, gradients) = (bucket.buffer()?, bucket.gradients()?);
        let index = bucket.index();
        let original = add_error(state, index, &mut buffer)?;
        let (uncompressed, matrices) = sort_out(state, gradients)?;
        let batches = batches(&state.options, matrices)?;
        let (memory, compressed) = factors(state, index, &buffer, batches)?;
        for LowRank { batch, p, q } in &compressed {
            let _ = batch.m.f_bmm_out(p, q)?;
        }
        let is_last = bucket.is_last();
        Ok(Exchange { index, is_last, buffer, original, uncompressed, compressed, memory })
    }

    /// The uncompressed gradients, concatenated.
    pub(super) fn uncompressed_memory(&self) -> Result<Tensor> {
        // There may be none, and `cat` takes at least one.
        let nothing = Tensor::f_empty([0], (self.buffer.kind(), self.buffer.device()));
        let flat = self.uncompressed.iter().map(|tensor| tensor.f_view([-1]));
        let flat: Vec<_> = once(nothing).chain(flat).collect::<Result<_, _>>()?;
        Ok(Tensor::f_cat(&flat, 0)?)
    }

    /// Everything after that, given the sum of [`uncompressed_memory`](Self::uncompressed_memory) over the ranks.
    pub(super) fn finish(
        mut self,
        state: &mut State,
        group: &ProcessGroup,
        uncompressed_sum: Tensor,
    ) -> Result<Tensor> {
        let world_size = group.world_size() as f64;
        self.unpack(uncompressed_sum, world_size)?;
        // The columns' lengths do not affect the result: no division.
        group.all_reduce(&mut self.memory[0], ReduceOp::Sum)?;
        self.multiply_by_p(&state.options)?;
        group.all_reduce(&mut self.memory[1], ReduceOp::Sum)?;
        self.decompress(world_size)?;
        if let Some(original) = &self.original {
            let lost = original.f_sub(&self.buffer)?;
            state.errors.insert(self.index, lost);
        }
        state.iteration += u64::from(self.is_last);
        Ok(self.buffer)
    }

    fn unpack(&mut self, mut sum: Tensor, world_size: f64) -> Result<(), TchError> {
        div_number_(&mut sum, world_size)?;
        let mut start = 0;
        for tensor in &mut self.uncompressed {
            let len = tensor.numel() as i64;
            tensor.f_copy_(&sum.f_narrow(0, start, len)?.f_view_as(tensor)?)?;
            start += len;
        }
        Ok(())
    }

    /// Q = Mᵀ P
    fn multiply_by_p(&self, options: &PowerSgdOptions) -> Result<(), TchError> {
        for LowRank { p, .. } in &self.compressed {
            orthogonalize(p, options.orthogonalization_epsilon)?;
        }
        for LowRank { batch, p, q } in &self.compressed {
            let _ = batch.m.f_transpose(1, 2)?.f_bmm_out(q, p)?;
        }
        Ok(())
    }

    /// M = P Qᵀ
    fn decompress(&mut self, world_size: f64) -> Result<(), TchError> {
        div_number_(&mut self.memory[1], world_size)?;
        for LowRank { batch: Batch { parts, m }, p, q } in &mut self.compressed {
            let _ = p.f_bmm_out(m, &q.f_transpose(1, 2)?)?;
            for (index, part) in parts.iter_mut().enumerate() {
                part.f_copy_(&m.f_select(0, index as i64)?)?;
            }
        }
        Ok(())
    }
}

/// Adds the last step's error to the gradients, and returns a copy of the sum.
fn add_error(state: &State, index: usize, buffer: &mut Tensor) -> Result<Option<Tensor>, TchError> {
    if !state.options.use_error_feedback {
        return Ok(None);
    }
    if let Some(error) = state.errors.get(&index) {
        let _ = buffer.f_add_(error)?;
    }
    Ok(Some(buffer.f_detach_copy()?))
}

/// The uncompressed gradients, and the others as matrices.
fn sort_out(
    state: &mut State,
    gradients: Vec<Tensor>,
) -> Result<(Vec<Tensor>, Vec<Tensor>), TchError> {
    let (mut uncompressed, mut matrices) = (Vec::new(), Vec::new());
    for gradient in gradients {
        let numel = gradient.numel() as u64;
        // The first dimension gives the rows; a scalar is one row.
        let rows = gradient.size().first().copied().unwrap_or(1);
        let matrix = gradient.f_view([rows, -1])?;
        let size = state.options.compressed_size(rows, matrix.size2()?.1);
        match size {
            Some(_) => matrices.push(matrix),
            None => uncompressed.push(gradient),
        }
        state.numel[0] += numel;
        state.numel[1] += size.unwrap_or(numel);
    }
    Ok((uncompressed, matrices))
}
