//! The ranks that share a model: a mesh of one dimension, or of two for hybrid sharding.

use crate::distributed::group::{DeviceMesh, ProcessGroup};
use crate::{Error, Result};

/// The ranks among which a model is divided, and those that have copies of the same part.
#[derive(Debug, Clone)]
pub(crate) struct Mesh {
    /// All of them.
    pub world: ProcessGroup,
    /// Those that have the parts of one copy.
    pub shard: ProcessGroup,
    /// Those that have the same part as this one. `None` if there is only one copy.
    pub replicate: Option<ProcessGroup>,
}

impl Mesh {
    pub fn new(group: &ProcessGroup) -> Self {
        Mesh { world: group.clone(), shard: group.clone(), replicate: None }
    }

    pub fn of(mesh: &DeviceMesh) -> Result<Self> {
        let (replicate, shard) = match &mesh.groups[..] {
            [shard] => (None, shard),
            [replicate, shard] => (Some(replicate).filter(|group| group.world_size() > 1), shard),
            groups => {
                let found = format!("of {} dimensions", groups.len());
                let expected = "of one, or of two for copies and shards";
                return Err(Error::argument("mesh", found, expected));
            }
        };
        Ok(Mesh { world: mesh.world.clone(), shard: shard.clone(), replicate: replicate.cloned() })
    }
}
