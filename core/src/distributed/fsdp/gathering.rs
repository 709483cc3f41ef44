//! All ranks' parts of a block's parameters: `foreach_all_gather`.

use crate::distributed::collectives::{Pending, copy_each};
use crate::{Result, distributed::group::ProcessGroup};
use tch::{Device, Tensor};

/// Starts to gather all ranks' `parts[i]`, `[n]`, in `wholes[i]`, `[ranks, n]`. One collective, as Python's:
/// `all_gather_into_tensor` of all parts as one tensor.
pub(super) fn gather(
    group: &ProcessGroup,
    wholes: Vec<Tensor>,
    parts: &[Tensor],
) -> Result<Pending<()>> {
    if shares_memory(group, &parts[0]) {
        let work = group.engine().all_gather_parts(&wholes, parts, group.call());
        return group.pending("all_gather_into_tensor", work, |_| Ok(()));
    }
    let lengths: Vec<_> = parts.iter().map(|part| part.numel() as i64).collect();
    let (ranks, rank) = (group.world_size() as i64, group.rank() as i64);
    let options = (parts[0].kind(), parts[0].device());
    let all = Tensor::f_empty([ranks * lengths.iter().sum::<i64>()], options)?;
    let in_rows = all.f_view([ranks, -1])?;
    let own = in_rows.f_get(rank)?;
    copy_each(&own.f_split_with_sizes(&lengths, 0)?, parts)?;
    let gathering = group.all_gather_into_tensor_async(all, own)?;
    Ok(gathering.then(move |_| copy_each(&wholes, &in_rows.f_split_with_sizes(&lengths, 1)?)))
}

/// Whether the ranks read and write tensors like this one where they lie.
pub(crate) fn shares_memory(group: &ProcessGroup, like: &Tensor) -> bool {
    let is_readable = like.device() == Device::Cpu && like.is_floating_point();
    is_readable && group.engine().no_shared_memory().is_none()
}
