//! Which tensors are shards, for code that must tell them from whole parameters.

use super::mesh::Mesh;
use crate::{Error, Result, check, distributed::group::ProcessGroup};
use c10d_sys::{backward_hooks::before_backward, tensor::identity};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tch::Tensor;
use tch_parallel_base::lock;

/// What each shard is a part of, by the tensor's identity.
static SHARDS: Mutex<BTreeMap<usize, Shard>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone)]
pub(crate) struct Shard {
    /// The ranks that have the other parts.
    pub mesh: Mesh,
    /// The shape of the whole parameter.
    pub size: Vec<i64>,
    /// The first of this rank's rows.
    pub begin: i64,
}

/// Lists a shard as long as this lives.
struct Registered(usize);

/// Lists a shard as long as anyone holds the tensor: a store may outlive its model. The tensor needs a gradient.
pub(super) fn register(tensor: &Tensor, shard: Shard) -> Result<()> {
    lock(&SHARDS).insert(identity(tensor), shard);
    let registered = Registered(identity(tensor));
    let holder = move || {
        let _ = &registered;
        Ok(())
    };
    before_backward(tensor, holder).map_err(Error::engine("FullyShard"))
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Dropped without the lock, because this may be the group's last handle.
        let shard = lock(&SHARDS).remove(&self.0);
        drop(shard);
    }
}

/// What a parameter is a part of; `None` if it is whole.
pub(crate) fn shard_of(parameter: &Tensor) -> Option<Shard> {
    lock(&SHARDS).get(&identity(parameter)).cloned()
}

/// The shape of the whole parameter if this is a shard, as in a sharded model's store, else its own. `DTensor.shape`
pub fn full_size(parameter: &Tensor) -> Vec<i64> {
    shard_of(parameter).map_or_else(|| parameter.size(), |shard| shard.size)
}

/// The group over which these parameters are sharded; `None` if they are whole.
pub(crate) fn group_of(parameters: &[Tensor]) -> Result<Option<ProcessGroup>> {
    let shards = lock(&SHARDS);
    let mut groups =
        parameters.iter().map(|parameter| Some(&shards.get(&identity(parameter))?.mesh.shard));
    let first = groups.next().flatten();
    let address = |group: Option<&ProcessGroup>| group.map(|group| Arc::as_ptr(&group.inner));
    let found = "a list that mixes whole parameters with shards of FullyShard, or shards of different groups";
    let expected = "a list of only one of these: call this once for each";
    check(groups.all(|it| address(it) == address(first)), "parameters", found, expected)?;
    Ok(first.cloned())
}

/// Refuses shards where only whole parameters work. `instead` says what to do.
pub(crate) fn refuse<'a>(
    what: &str,
    parameters: impl IntoIterator<Item = &'a (String, Tensor)>,
    instead: &str,
) -> Result<()> {
    let shards = lock(&SHARDS);
    let mut parameters = parameters.into_iter();
    let shard = parameters.find(|(_, parameter)| shards.contains_key(&identity(parameter)));
    shard.map_or(Ok(()), |(name, _)| {
        let found = format!("given {name}, which FullyShard has sharded");
        Err(Error::argument(what, found, format!("used with whole parameters: {instead}")))
    })
}
