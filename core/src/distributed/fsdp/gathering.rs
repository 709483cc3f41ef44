//! All ranks' parts of a block's parameters: `foreach_all_gather`.

use crate::distributed::collectives::Pending;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use tch::{Tensor, no_grad};

/// Starts to gather all ranks' `parts[i]`, `[n]`, in `wholes[i]`, `[ranks, n]`. A collective, and what
/// Python's is: `all_gather_into_tensor` of all parts as one tensor.
pub(super) fn gather(
    group: &ProcessGroup,
    wholes: Vec<Tensor>,
    parts: &[Tensor],
    is_async: bool,
) -> Result<Pending<()>> {
    if group.engine().no_shared_memory().is_none() {
        let work = group.engine().all_gather_parts(&wholes, parts, group.call(is_async));
        return group.pending("all_gather_into_tensor", work, |_| Ok(()));
    }
    let lengths: Vec<_> = parts.iter().map(|part| part.numel() as i64).collect();
    let (ranks, rank) = (group.world_size() as i64, group.rank() as i64);
    let options = (parts[0].kind(), parts[0].device());
    let all = Tensor::f_empty([ranks * lengths.iter().sum::<i64>()], options)?;
    let in_rows = all.f_view([ranks, -1])?;
    let own = in_rows.f_get(rank)?;
    no_grad(|| {
        let places = own.f_split_with_sizes(&lengths, 0)?;
        places.into_iter().zip(parts).try_for_each(|(mut place, part)| place.f_copy_(part))
    })?;
    let work = group.engine().all_gather_into_tensor(&all, &own, group.call(is_async));
    group.pending("all_gather_into_tensor", work, move |_| {
        no_grad(|| {
            let gathered = in_rows.f_split_with_sizes(&lengths, 1)?;
            wholes
                .into_iter()
                .zip(gathered)
                .try_for_each(|(mut whole, gathered)| whole.f_copy_(&gathered))
        })
        .map_err(Error::from)
    })
}
