//! Matrices and their low-rank factors.

use super::{PowerSgdOptions, orthogonalize::orthogonalize, state::State};
use crate::Tensors;
use c10d_sys::tensor::randn_;
use tch::{TchError, Tensor};
use tch_parallel_base::tensors::grouped;

type Result<T> = std::result::Result<T, TchError>;

/// Matrices of one shape.
pub(super) struct Batch {
    /// Their source, if `m` is a copy.
    pub(super) parts: Vec<Tensor>,
    /// `[batch, rows, columns]`
    pub(super) m: Tensor,
}

/// Matrices of one shape and the factors that replace them: m = p qᵀ.
pub(super) struct LowRank {
    pub(super) batch: Batch,
    /// `[batch, rows, rank]`, a view into the memory of all P.
    pub(super) p: Tensor,
    /// `[batch, columns, rank]`, a view into the memory of all Q.
    pub(super) q: Tensor,
}

impl Batch {
    fn shapes(&self, options: &PowerSgdOptions) -> Result<[[i64; 3]; 2]> {
        let (batch, rows, columns) = self.m.size3()?;
        let rank = options.rank_of(rows, columns);
        Ok([[batch, rows, rank], [batch, columns, rank]])
    }
}

/// The matrices in the order of their factors in memory: those of the same shape are adjacent.
pub(super) fn batches(options: &PowerSgdOptions, matrices: Vec<Tensor>) -> Result<Vec<Batch>> {
    let mut batches = Vec::new();
    for group in grouped(matrices, Tensor::size) {
        if options.batch_tensors_with_same_shape && group.len() > 1 {
            batches.push(Batch { m: Tensor::f_stack(&group, 0)?, parts: group });
        } else {
            for matrix in group {
                batches.push(Batch { parts: Vec::new(), m: matrix.f_unsqueeze(0)? });
            }
        }
    }
    Ok(batches)
}

/// Assigns the memory of P and Q to the matrices of the bucket with this index. Q holds the start values of the step.
pub(super) fn factors(
    state: &mut State,
    index: usize,
    buffer: &Tensor,
    batches: Vec<Batch>,
) -> Result<([Tensor; 2], Vec<LowRank>)> {
    let options = state.options;
    let remembered = state.memory.get(&index).map(Tensors::shallow_clone);
    let is_new = remembered.is_none();
    let memory = remembered.map_or_else(|| allocate(&options, buffer, &batches), Ok)?;
    if options.warm_start {
        state.memory.insert(index, memory.shallow_clone());
    }

    let mut starts = [0, 0];
    let mut view = |which: usize, shape: [i64; 3]| {
        let len = shape.iter().product();
        let view = memory[which].f_narrow(0, starts[which], len)?.f_view(shape);
        starts[which] += len;
        view
    };
    let mut factors = Vec::new();
    for batch in batches {
        let [p_shape, q_shape] = batch.shapes(&options)?;
        let (p, q) = (view(0, p_shape)?, view(1, q_shape)?);
        factors.push(LowRank { batch, p, q });
    }
    if is_new {
        let mut qs: Vec<_> = factors.iter().map(|factor| factor.q.shallow_clone()).collect();
        randn_(&mut qs, state.seed()).map_err(|error| TchError::Torch(error.message().into()))?;
    }
    factors.iter().try_for_each(|it| orthogonalize(&it.q, options.orthogonalization_epsilon))?;
    Ok((memory, factors))
}

/// Memory for all P and for all Q, of the gradients' kind.
fn allocate(options: &PowerSgdOptions, buffer: &Tensor, batches: &[Batch]) -> Result<[Tensor; 2]> {
    let mut sizes = [0, 0];
    for batch in batches {
        for (size, shape) in sizes.iter_mut().zip(batch.shapes(options)?) {
            *size += shape.iter().product::<i64>();
        }
    }
    let empty = |size| Tensor::f_empty([size], (buffer.kind(), buffer.device()));
    Ok([empty(sizes[0])?, empty(sizes[1])?])
}
