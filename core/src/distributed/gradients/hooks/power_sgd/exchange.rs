//! One bucket in a step of PowerSGD.

use super::low_rank::{Batch, LowRank, batches, factors};
use super::{orthogonalize::orthogonalize, state::State};
use crate::Result;
use crate::distributed::{ProcessGroup, ReduceOp, collectives::copy_back, hooks::GradBucket};
use c10d_sys::arithmetic::div_number_;
use std::iter::once;
use tch::{TchError, Tensor};

/// What is computed before the bucket's first collective and needed afterwards.
pub(super) struct Exchange {
    index: usize,
    is_last: bool,
    /// Where the result is; if batched, longer than that.
    buffer: Tensor,
    len: i64,
    /// The gradients before the approximation; only with error feedback.
    original: Option<Tensor>,
    /// The gradients that are exchanged uncompressed: views into the buffer. `None` if batched.
    uncompressed: Option<Vec<Tensor>>,
    compressed: Vec<LowRank>,
    /// The memory of all P, and of all Q: each is exchanged at once.
    memory: [Tensor; 2],
}

impl Exchange {
    /// Everything up to the first product, P = M Q.
    pub(super) fn prepare(state: &mut State, bucket: &GradBucket<'_>) -> Result<Exchange> {
        let (index, mut buffer) = (bucket.index(), bucket.buffer()?);
        let len = buffer.size1()?;
        let side = (len as f64).sqrt().ceil() as i64;
        if state.batched {
            buffer = buffer.f_constant_pad_nd([0, side * side - len])?;
        }
        // The last step's error; none without error feedback.
        if let Some(error) = state.errors.get(&index) {
            let _ = buffer.f_add_(error)?;
        }
        let original = state.options.use_error_feedback.then(|| buffer.f_detach_copy());
        let original = original.transpose()?;
        let (uncompressed, matrices) = if state.batched {
            state.numel[0] += len as u64;
            state.numel[1] += 2 * (side * state.options.rank_of(side, side)) as u64;
            (None, vec![buffer.f_view([side, side])?])
        } else {
            let [uncompressed, matrices] = sort_out(state, bucket.gradients()?)?;
            (Some(uncompressed), matrices)
        };
        let batches = batches(&state.options, matrices)?;
        let (memory, compressed) = factors(state, index, &buffer, batches)?;
        compressed.iter().try_for_each(|it| multiply(&it.p, &it.batch.m, &it.q, state.batched))?;
        let is_last = bucket.is_last();
        Ok(Exchange { index, is_last, buffer, len, original, uncompressed, compressed, memory })
    }

    /// What is exchanged first: the uncompressed gradients, concatenated, or P if there can be none.
    pub(super) fn first(&self) -> Result<Tensor> {
        let Some(uncompressed) = &self.uncompressed else {
            return Ok(self.memory[0].shallow_clone());
        };
        // There may be none, and `cat` takes at least one.
        let nothing = Tensor::f_empty([0], (self.buffer.kind(), self.buffer.device()));
        let flat = uncompressed.iter().map(|tensor| tensor.f_view([-1]));
        let flat: Vec<_> = once(nothing).chain(flat).collect::<Result<_, _>>()?;
        Ok(Tensor::f_cat(&flat, 0)?)
    }

    /// Everything after that, given the sum of [`first`](Self::first) over the ranks.
    pub(super) fn finish(
        mut self,
        state: &mut State,
        group: &ProcessGroup,
        mut first_sum: Tensor,
    ) -> Result<Tensor> {
        let world_size = group.world_size() as f64;
        // The columns' lengths do not affect the result: no division.
        if let Some(uncompressed) = &self.uncompressed {
            div_number_(&mut first_sum, world_size)?;
            copy_back(uncompressed, &first_sum)?;
            group.all_reduce(&mut self.memory[0], ReduceOp::Sum)?;
        }
        // Q = Mᵀ P
        for LowRank { batch, p, q } in &self.compressed {
            orthogonalize(p, state.options.orthogonalization_epsilon)?;
            multiply(q, &batch.m.f_transpose(1, 2)?, p, state.batched)?;
        }
        group.all_reduce(&mut self.memory[1], ReduceOp::Sum)?;
        div_number_(&mut self.memory[1], world_size)?;
        // M = P Qᵀ
        for LowRank { batch: Batch { parts, m }, p, q } in &mut self.compressed {
            multiply(m, p, &q.f_transpose(1, 2)?, state.batched)?;
            for (index, part) in parts.iter_mut().enumerate() {
                part.f_copy_(&m.f_select(0, index as i64)?)?;
            }
        }
        if let Some(original) = &self.original {
            state.errors.insert(self.index, original.f_sub(&self.buffer)?);
        }
        state.iteration += u64::from(self.is_last);
        Ok(self.buffer.f_narrow(0, 0, self.len)?)
    }
}

/// Where PyTorch does not multiply batches, neither does this: the roundings differ.
fn multiply(out: &Tensor, a: &Tensor, b: &Tensor, batched: bool) -> Result<(), TchError> {
    match batched {
        true => a.f_get(0)?.f_mm_out(&out.f_get(0)?, &b.f_get(0)?),
        false => a.f_bmm_out(out, b),
    }
    .map(drop)
}

/// The uncompressed gradients, and the others as matrices.
fn sort_out(state: &mut State, gradients: Vec<Tensor>) -> Result<[Vec<Tensor>; 2], TchError> {
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
    Ok([uncompressed, matrices])
}
