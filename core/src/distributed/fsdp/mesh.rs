//! The ranks that share a model: PyTorch's mesh of one dimension, or of two for hybrid sharding.

use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};

/// The ranks among which a model is divided, and those that have copies of the same part.
#[derive(Debug, Clone)]
pub(crate) struct Mesh {
    /// All of them.
    pub world: ProcessGroup,
    /// Those that have the parts of one copy: neighbours, so that they are on one host.
    pub shard: ProcessGroup,
    /// Those that have the same part as this one. `None` if there is only one copy.
    pub replicate: Option<ProcessGroup>,
}

impl Mesh {
    pub fn new(group: &ProcessGroup) -> Self {
        Mesh { world: group.clone(), shard: group.clone(), replicate: None }
    }

    /// `init_device_mesh(device, (replicas, shards))`. A collective.
    pub fn hybrid(group: &ProcessGroup, replicas: usize) -> Result<Self> {
        let ranks = group.world_size();
        if replicas == 0 || !ranks.is_multiple_of(replicas) {
            let expected =
                format!("a number by which {ranks}, the number of ranks, can be divided");
            return Err(Error::argument("replicas", replicas, expected));
        }
        let shards = ranks / replicas;
        let (mut shard, mut replicate) = (None, None);
        for first in (0..ranks).step_by(shards) {
            let copy: Vec<_> = (first..first + shards).collect();
            shard = group.new_group(&copy)?.or(shard);
        }
        for first in 0..shards {
            let same_part: Vec<_> = (first..ranks).step_by(shards).collect();
            replicate = group.new_group(&same_part)?.or(replicate);
        }
        let Some(shard) = shard else { unreachable!("every rank is in one of the groups") };
        let replicate = replicate.filter(|_| replicas > 1);
        Ok(Mesh { world: group.clone(), shard, replicate })
    }
}
