//! Files of sharded models hold whole tensors, gathered one at a time while written; each rank reads its own rows.

use super::layout::{MODEL, OPTIMIZER};
use crate::distributed::fsdp::mesh::Mesh;
use crate::distributed::fsdp::shards::{Shard, shard_of};
use crate::{Error, Result, check, check_file, distributed::ProcessGroup};
use std::{collections::HashMap, ops::Range, path::Path, sync::Arc};
use tch::{Kind, Tensor, no_grad};
use tch_parallel_base::named_tensors::{Source, refuse_sparse};

pub(super) const WRITER: usize = 0;

/// The parameters of a model that `FullyShard` has sharded, by name. Empty for any other model.
pub(super) struct Sharding(HashMap<String, (Tensor, Shard)>);

impl Sharding {
    pub fn of(variables: &[(String, Tensor)]) -> Self {
        let shard = |(name, rows): &(String, Tensor)| {
            Some((name.clone(), (rows.shallow_clone(), shard_of(rows)?)))
        };
        Sharding(variables.iter().filter_map(shard).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails unless the model is sharded over this group, and all of it over the same ranks.
    pub fn check(&self, group: &ProcessGroup) -> Result<()> {
        let meshes = || self.0.values().map(|(_, shard)| &shard.mesh);
        let is_ours = |mesh: &Mesh| Arc::ptr_eq(&mesh.world.inner, &group.inner);
        let is_first = |mesh: &Mesh| {
            meshes().next().is_some_and(|first| Arc::ptr_eq(&mesh.shard.inner, &first.shard.inner))
        };
        let is_whole = meshes().all(|mesh| is_ours(mesh) && is_first(mesh));
        let found = "another than the one over which FullyShard has sharded the model";
        check(is_whole, "group", found, "that one, all of whose ranks call this")
    }

    /// A parameter with this name, or to whose state the name belongs: `PARAMETER.ENTRY`.
    fn parameter(&self, name: &str) -> Option<&(Tensor, Shard)> {
        let of_state = || self.0.get(name.rsplit_once('.')?.0);
        self.0.get(name).or_else(of_state)
    }

    /// A tensor of the model, or of its optimizer's state, as it is written.
    pub fn saved(&self, name: &str, tensor: Tensor) -> Result<Saved> {
        refuse_sparse(name, &tensor)?;
        let is_like = |rows: &Tensor| tensor.dim() > 0 && rows.size() == tensor.size();
        let parameter = self.parameter(name).filter(|(rows, _)| is_like(rows));
        Ok(Saved { shard: parameter.map(|(_, shard)| shard.clone()), tensor })
    }

    /// Which rows of a tensor in the file `path` are this rank's; `None` for all.
    pub fn rows(&self, path: &Path, name: &str, size: &[usize]) -> Result<Option<Range<usize>>> {
        let inner = [MODEL, OPTIMIZER, "module."].iter().find_map(|it| name.strip_prefix(it));
        let of = |name| Some((name, self.parameter(name)?));
        let Some((name, (rows, shard))) = of(name).or_else(|| of(inner?)) else { return Ok(None) };
        if size.is_empty() {
            // A number in the optimizer's state.
            return Ok(None);
        }
        let is_alike = size.iter().map(|&length| length as i64).eq(shard.size.iter().copied());
        let found = format_args!("{name} has the shape {size:?}");
        check_file(is_alike, path, found, format_args!("{:?}, as in the model", shard.size))?;
        let begin = shard.begin as usize;
        Ok(Some(begin..begin + rows.size()[0] as usize))
    }
}

pub(super) struct Saved {
    /// All of it, or this rank's rows.
    pub(super) tensor: Tensor,
    /// Where these rows belong; `None` if it is whole.
    pub(super) shard: Option<Shard>,
}

impl Saved {
    /// The ranks that have the other parts.
    pub(super) fn shards(&self) -> Option<&ProcessGroup> {
        self.shard.as_ref().map(|shard| &shard.mesh.shard)
    }

    /// Gathers it on the rank that writes. A collective for shards.
    fn gather(&self) -> Result<Option<Tensor>> {
        let Saved { tensor: rows, shard: Some(Shard { mesh, size, .. }) } = self else {
            return Ok(None);
        };
        let group = &mesh.shard;
        no_grad(|| {
            let ranks = group.world_size() as i64;
            let padded_size = [&[(size[0] + ranks - 1) / ranks], &size[1..]].concat();
            let padded = Tensor::f_zeros(padded_size, (rows.kind(), rows.device()))?;
            padded.f_narrow(0, 0, rows.size()[0])?.f_copy_(rows)?;
            let Some(parts) = group.gather(&padded, WRITER)? else { return Ok(None) };
            Ok(Some(Tensor::f_cat(&parts, 0)?.f_narrow(0, 0, size[0])?))
        })
    }
}

/// A tensor as the writing rank fetches it.
pub(super) struct Fetched<'a> {
    saved: &'a Saved,
    place: usize,
}

/// Calls `write` on the writing rank, with tensors that are gathered when they are fetched. A collective if sharded.
pub(super) fn while_gathering(
    tensors: &[(String, Saved)],
    group: &ProcessGroup,
    write: impl FnOnce(Vec<(String, Fetched<'_>)>) -> Result<()>,
) -> Result<()> {
    let shards = tensors.iter().find_map(|(_, saved)| saved.shards());
    if group.rank() == WRITER {
        let fetched = tensors.iter().zip(0..);
        let fetched =
            fetched.map(|((name, saved), place)| (name.clone(), Fetched { saved, place }));
        let written = write(fetched.collect());
        // Nothing is gathered any more.
        let told = shards.map_or(Ok(()), |it| it.broadcast_object(&mut None::<usize>, WRITER));
        return written.and(told);
    }
    let Some(shards) = shards.filter(|shards| group.rank() < shards.world_size()) else {
        return Ok(());
    };
    loop {
        let mut place: Option<usize> = None;
        shards.broadcast_object(&mut place, WRITER)?;
        let Some(place) = place else { return Ok(()) };
        tensors[place].1.gather()?;
    }
}

impl Source for Fetched<'_> {
    fn kind(&self) -> Kind {
        self.saved.tensor.kind()
    }

    fn size(&self) -> Vec<i64> {
        let Saved { tensor, shard } = self.saved;
        shard.as_ref().map_or_else(|| tensor.size(), |shard| shard.size.clone())
    }

    fn fetch(&self) -> Result<Tensor> {
        let Some(shards) = self.saved.shards() else {
            return Ok(self.saved.tensor.shallow_clone());
        };
        shards.broadcast_object(&mut Some(self.place), WRITER)?;
        let whole = self.saved.gather()?;
        whole.ok_or_else(|| Error::argument("rank", shards.rank(), "0, which alone writes"))
    }
}
