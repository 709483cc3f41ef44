//! Which tensors are shards, for what must treat them in another way than whole parameters.

use super::schedule::lock;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::tensor::identity;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tch::Tensor;

/// The group of each shard, by the shard's identity.
static SHARDS: Mutex<BTreeMap<usize, ProcessGroup>> = Mutex::new(BTreeMap::new());

/// Keeps a shard known as one.
#[derive(Debug)]
pub(super) struct Registered(usize);

impl Registered {
    pub fn new(shard: &Tensor, group: &ProcessGroup) -> Self {
        lock(&SHARDS).insert(identity(shard), group.clone());
        Registered(identity(shard))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Dropped after the lock is free, since this may be the group's last handle.
        let group = lock(&SHARDS).remove(&self.0);
        drop(group);
    }
}

/// The group over which these parameters are sharded; `None` if they are whole.
pub(crate) fn group_of(parameters: &[Tensor]) -> Result<Option<ProcessGroup>> {
    let shards = lock(&SHARDS);
    let mut groups = parameters.iter().map(|parameter| shards.get(&identity(parameter)));
    let first = groups.next().flatten();
    if groups.all(|group| group.is_some() == first.is_some()) {
        return Ok(first.cloned());
    }
    Err(Error::argument(
        "parameters",
        "a list of whole parameters and of shards of FullyShard",
        "either, since they need different treatment",
    ))
}

/// Refuses shards where only whole parameters make sense.
pub(crate) fn refuse<'a>(
    what: &str,
    mut parameters: impl Iterator<Item = (&'a str, &'a Tensor)>,
) -> Result<()> {
    let shards = lock(&SHARDS);
    match parameters.find(|(_, parameter)| shards.contains_key(&identity(parameter))) {
        None => Ok(()),
        Some((name, _)) => Err(Error::argument(
            what,
            format!("given {name}, which FullyShard has sharded"),
            "used with whole parameters: FullyShard reduces gradients itself, and an optimizer of \
             its shards keeps only their state",
        )),
    }
}
