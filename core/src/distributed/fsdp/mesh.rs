//! The ranks that share a model: a mesh of one dimension, or of two for hybrid sharding.

use crate::distributed::group::{DeviceMesh, ProcessGroup};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The ranks among which a model is divided, and those that have copies of the same part.
#[derive(Debug, Clone)]
pub(crate) struct Mesh {
    /// All of them.
    pub world: ProcessGroup,
    /// Those that have the parts of one copy.
    pub shard: ProcessGroup,
    /// Those that have the same part as this one. `None` if there is only one copy.
    pub replicate: Option<ProcessGroup>,
    /// The groups of N neighbours in `shard` that units have asked for, by N.
    pub neighbours: Arc<Mutex<BTreeMap<usize, ProcessGroup>>>,
}

impl Mesh {
    pub fn new(group: &ProcessGroup) -> Self {
        let (world, shard) = (group.clone(), group.clone());
        Mesh { world, shard, replicate: None, neighbours: Arc::default() }
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
        let (world, shard) = (mesh.world.clone(), shard.clone());
        Ok(Mesh { world, shard, replicate: replicate.cloned(), neighbours: Arc::default() })
    }
}
