//! One parameter, whole or as shards: `FSDPParam`.

use super::shards::{Shard, register};
use super::{mesh::Mesh, pool::Pool};
use crate::{Error, Result, check, distributed::group::ProcessGroup};
use c10d_sys::storage::{Block, Memory, version};
use c10d_sys::tensor::{clear_grad, set_grad};
use tch::{Kind, Tensor, no_grad};
use tch_parallel_optim::steps_in_backward;

/// A parameter. Each rank owns some of its rows, along the first dimension.
pub(super) struct Parameter {
    pub name: String,
    /// The leaf that the module's layers hold. Its memory comes and goes.
    pub whole: Tensor,
    /// The memory of `whole` as `[ranks, rows * row]`, with its own version counter: writing to it does not count as a
    /// change of the leaf.
    padded: Tensor,
    memory: Memory,
    /// The sum of gradients that have not been reduced, unless the leaf's own `grad` holds it.
    accumulated: Option<Tensor>,
    /// This rank's part of what is gathered, `[n]`: its rows, padded with zeros to the same number on each rank.
    pub part: Tensor,
    /// This rank's rows, as the optimizer and the store hold them. A view of `part`.
    pub shard: Tensor,
    /// The first of this rank's rows.
    begin: i64,
    /// The shard's version when the whole parameter was last gathered.
    gathered_version: i64,
}

impl Parameter {
    /// Keeps this rank's rows of a variable, whose handles have no memory until it is gathered, in `kind` if given.
    pub fn shard(name: String, mut whole: Tensor, kind: Option<Kind>, mesh: &Mesh) -> Result<Self> {
        let size = whole.size();
        let Some(&length) = size.first() else {
            let expected = "a tensor with a first dimension, along which it is sharded";
            return Err(Error::argument(format!("the parameter {name}"), "a scalar", expected));
        };
        let (ranks, rank) = (mesh.shard.world_size() as i64, mesh.shard.rank() as i64);
        let rows = (length + ranks - 1) / ranks;
        let begin = (rows * rank).min(length);
        let own = (rows * (rank + 1)).min(length) - begin;
        let row: i64 = size[1..].iter().product();
        let options = (whole.kind(), whole.device());
        no_grad(|| {
            let part = Tensor::f_zeros([rows * row], options)?;
            let mut values = part.f_narrow(0, 0, own * row)?;
            values.f_copy_(&whole.f_narrow(0, begin, own)?.f_reshape([-1])?)?;
            let shape = [&[own], &size[1..]].concat();
            let shard = values.f_view(shape.as_slice())?.f_detach()?;
            let shard = shard.f_set_requires_grad(true)?;
            register(&shard, Shard { mesh: mesh.clone(), size: size.clone(), begin })?;
            let shard = shard.f_set_requires_grad(whole.requires_grad())?;
            let (kind, device) = (kind.unwrap_or(whole.kind()), whole.device());
            let padded = Tensor::f_empty([ranks, rows * row], (kind, device))?;
            let view = padded.f_view([ranks * rows * row])?.f_narrow(0, 0, length * row)?;
            whole.f_set_data(&view.f_view(size.as_slice())?)?;
            let memory = Memory::of(&padded);
            let mut parameter = Parameter {
                name,
                whole,
                padded,
                memory,
                accumulated: None,
                part,
                shard,
                begin,
                gathered_version: 0,
            };
            // Not for a pool: together these are the whole model.
            drop(parameter.free()?);
            Ok(parameter)
        })
    }

    pub fn whole_kind(&self) -> Kind {
        self.padded.kind()
    }

    /// Copies this rank's rows from a whole parameter.
    pub fn load(&mut self, whole: &Tensor) -> Result<()> {
        let own = self.shard.size().first().copied().unwrap_or_default();
        no_grad(|| Ok(self.shard.f_copy_(&whole.f_narrow(0, self.begin, own)?)?))
    }

    /// Fails unless the store still holds the shard as it was made.
    pub fn check(&self) -> Result<()> {
        let there = self.shard.numel() == 0 || self.shard.data_ptr() == self.part.data_ptr();
        let is_unchanged = there && self.shard.kind() == self.part.kind();
        let what = format_args!("the parameter {}", self.name);
        let found = "another tensor than the shard that FullyShard made";
        let expected =
            "that shard: call set_kind, set_data and the like before the model is sharded";
        check(is_unchanged, what, found, expected)?;
        let steps = steps_in_backward(&self.shard) || steps_in_backward(&self.whole);
        let found = "stepped by an OptimizerInBackward, which gets no gradients of shards";
        check(!steps, what, found, "stepped by an optimizer after the pass")
    }

    /// Whether the shard has changed since the whole parameter was gathered.
    pub fn is_stale(&self) -> bool {
        version(&self.shard) != self.gathered_version
    }

    /// Allocates the whole parameter's memory and returns it as `[ranks, n]`, for these ranks' parts.
    pub fn allocate(&mut self, pool: &mut Pool, ranks: usize) -> Result<Tensor> {
        let block = self.memory.freed().and_then(|bytes| pool.take(bytes));
        self.memory.allocate(block).map_err(Error::engine("unshard"))?;
        self.gathered_version = version(&self.shard);
        self.in_parts(ranks)
    }

    /// A copy of this rank's part of the whole parameter, if these ranks divide it: `to_sharded_post_forward`.
    pub fn part_among(&self, group: &ProcessGroup) -> Result<Tensor> {
        Ok(self.in_parts(group.world_size())?.f_select_copy(0, group.rank() as i64)?)
    }

    fn in_parts(&self, ranks: usize) -> Result<Tensor> {
        let ranks = ranks as i64;
        Ok(self.padded.f_view([ranks, self.padded.numel() as i64 / ranks])?)
    }

    /// Gives the whole parameter the shard's `requires_grad`: `VarStore::freeze` only reaches the shard.
    pub fn freeze_like_shard(&mut self) -> Result<()> {
        if self.whole.requires_grad() != self.shard.requires_grad() {
            self.whole = self.whole.f_set_requires_grad(self.shard.requires_grad())?;
        }
        Ok(())
    }

    /// Frees the whole parameter's memory and returns it, if it can serve another parameter.
    pub fn free(&mut self) -> Result<Option<Block>> {
        if self.memory.freed().is_some() {
            return Ok(None);
        }
        let message = format!(
            "{} is sharded: it can only be read during the forward and backward passes of its block, \
             or between unshard and reshard",
            self.name
        );
        self.memory.free(&message).map_err(Error::engine("reshard"))
    }

    /// Takes the whole parameter's gradient, which is then undefined.
    pub fn take_gradient(&mut self) -> Result<Option<Tensor>> {
        let gradient = self.whole.f_grad()?;
        if !gradient.defined() {
            return Ok(self.accumulated.take());
        }
        clear_grad(&mut self.whole).map_err(Error::engine("backward"))?;
        let Some(mut accumulated) = self.accumulated.take() else { return Ok(Some(gradient)) };
        Ok(Some(accumulated.f_add_(&gradient)?))
    }

    /// Keeps the whole parameter's gradient for a later pass, accumulated in `kind`.
    pub fn keep_gradient(&mut self, kind: Kind) -> Result<()> {
        // In the leaf's own kind, autograd accumulates it.
        if kind != self.whole_kind() {
            self.accumulated = self.take_gradient()?.map(|it| it.f_to_kind(kind)).transpose()?;
        }
        Ok(())
    }

    /// Adds this rank's part of the reduced gradient to the shard's.
    pub fn add_gradient(&mut self, part: &Tensor) -> Result<()> {
        let own = part.f_narrow(0, 0, self.shard.numel() as i64)?;
        let own = own.f_view(self.shard.size().as_slice())?.f_to_kind(self.shard.kind())?;
        let mut before = self.shard.f_grad()?;
        if before.defined() {
            let _ = before.f_add_(&own)?;
            return Ok(());
        }
        set_grad(&mut self.shard, &own).map_err(Error::engine("backward"))
    }
}
