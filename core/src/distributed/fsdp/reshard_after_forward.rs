//! What a rank keeps of a unit's parameters after their forward pass: `_get_post_forward_mesh_info`.

use super::mesh::Mesh;
use crate::{Result, check, distributed::group::ProcessGroup};
use std::collections::btree_map::Entry;
use tch_parallel_base::lock;

/// What a rank keeps of a unit's whole parameters between their forward and their backward pass. PyTorch's `True`,
/// `False` and `2` are `true.into()`, `false.into()` and `2.into()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReshardAfterForward {
    /// Only its shard, except for the root, whose backward pass comes next anyway. `None`
    #[default]
    ExceptRoot,
    /// Only its shard. The backward pass gathers the parameters again from all ranks. `True`
    Yes,
    /// All of them. The backward pass gathers nothing. `False`
    No,
    /// One of N parts. The backward pass gathers them from N neighbouring ranks, for example those of one host. N divides
    /// the number of ranks that share a copy of the model. That number itself means [`Yes`](Self::Yes), and 1 means
    /// [`No`](Self::No), as in PyTorch, which warns about it.
    Ranks(usize),
}

impl From<bool> for ReshardAfterForward {
    fn from(reshard: bool) -> Self {
        if reshard { Self::Yes } else { Self::No }
    }
}

impl From<usize> for ReshardAfterForward {
    fn from(ranks: usize) -> Self {
        Self::Ranks(ranks)
    }
}

impl ReshardAfterForward {
    /// The ranks among which a unit's parameters are divided after the forward pass; `None` if they stay whole. The first
    /// time that a model needs a smaller group, all ranks make it together.
    pub(super) fn group(self, mesh: &Mesh, is_root: bool) -> Result<Option<ProcessGroup>> {
        let all = mesh.shard.world_size();
        let ranks = match self {
            Self::ExceptRoot if is_root => return Ok(None),
            Self::No | Self::Ranks(1) => return Ok(None),
            Self::ExceptRoot | Self::Yes => all,
            Self::Ranks(ranks) => ranks,
        };
        if ranks == all {
            return Ok(Some(mesh.shard.clone()));
        }
        let is_divisor = ranks > 0 && all.is_multiple_of(ranks);
        let expected = format!("a divisor of {all}, the number of ranks that share the model");
        check(is_divisor, "reshard_after_forward", ranks, expected)?;
        Ok(Some(match lock(&mesh.neighbours).entry(ranks) {
            Entry::Occupied(made) => made.get().clone(),
            Entry::Vacant(none) => none.insert(mesh.shard.new_subgroups(ranks)?).clone(),
        }))
    }
}
