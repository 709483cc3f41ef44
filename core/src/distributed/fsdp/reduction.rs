//! The mean of the ranks' gradients: `foreach_reduce`.

use super::{gathering::shares_memory, mesh::Mesh};
use crate::Result;
use c10d_sys::{ReduceOp, arithmetic::div_number_};
use tch::{Kind, Tensor};

/// This rank's rows of the mean gradients, padded alike on all ranks, one after the other. In `kind` if given.
pub(super) fn mean_of_part(
    mesh: &Mesh,
    mut gradients: Vec<Tensor>,
    kind: Option<Kind>,
) -> Result<Tensor> {
    if let Some(kind) = kind {
        gradients = gradients.iter().map(|it| it.f_to_kind(kind)).collect::<Result<_, _>>()?;
    }
    let (group, kind) = (&mesh.shard, gradients[0].kind());
    let ranks = group.world_size() as i64;
    let rows_of = |gradient: &Tensor| (gradient.size()[0] + ranks - 1) / ranks;
    let row_of = |gradient: &Tensor| gradient.size()[1..].iter().product::<i64>();
    let length = gradients.iter().map(|it| rows_of(it) * row_of(it)).sum::<i64>();
    let device = gradients[0].device();
    let mut own = Tensor::f_empty([length], (kind, device))?;
    let (before, op, after) = division(kind, mesh.world.world_size() as i64);
    if before == 1.0 && shares_memory(group, &gradients[0]) {
        // What can be read where it lies, is.
        let in_rows = |gradient: Tensor| match gradient.size()[0] % ranks {
            0 => gradient.f_contiguous()?.f_view([ranks, gradient.numel() as i64 / ranks]),
            _ => Tensor::f_internal_chunk_cat(&[gradient], 0, ranks),
        };
        let gradients = gradients.into_iter().map(in_rows).collect::<Result<Vec<_>, _>>()?;
        let call = group.at_once().call();
        let work = group.engine().reduce_scatter_parts(&own, &gradients, op, call);
        group.pending("reduce_scatter_tensor", work, |_| Ok(()))?.wait()?;
    } else {
        let mut all = Tensor::f_empty([ranks, length], (kind, device))?;
        let _ = Tensor::f_internal_chunk_cat_out(&all, &gradients, 0, ranks)?;
        drop(gradients);
        divide(&mut all, before)?;
        group.reduce_scatter_tensor(&mut own, &all.f_view([ranks * length])?, op)?;
    }
    if let Some(replicas) = &mesh.replicate {
        replicas.all_reduce(&mut own, op)?;
    }
    divide(&mut own, after)?;
    Ok(own)
}

/// The divisors before and after the reduction: `_get_gradient_divide_factors`. For 16-bit floats,
/// each is about the square root of the number of ranks, so that sums neither overflow nor underflow.
fn division(kind: Kind, ranks: i64) -> (f64, ReduceOp, f64) {
    if matches!(kind, Kind::Float | Kind::BFloat16) {
        return (1.0, ReduceOp::Avg, 1.0);
    }
    let mut before = 1;
    while ranks % before == 0 && ranks > before * before {
        before *= 2;
    }
    (before as f64, ReduceOp::Sum, ranks as f64 / before as f64)
}

fn divide(tensor: &mut Tensor, by: f64) -> Result<()> {
    if by == 1.0 { Ok(()) } else { Ok(div_number_(tensor, by)?) }
}
