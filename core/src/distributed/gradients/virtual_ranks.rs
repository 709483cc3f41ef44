//! Gradients whose bits do not depend on the number of ranks: DistributedDataParallel's `virtual_ranks`.

use super::hooks::{CommHook, GradBucket, from_fn, gradients_in};
use crate::distributed::collectives::IN_A_PART;
use crate::distributed::group::{ProcessGroup, Transport};
use crate::{Error, Result, check, data::Shard};
use c10d_sys::random::{rng_state, set_rng_state};
use c10d_sys::{autograd::backward_from, tensor::set_grad};
use std::{iter::repeat_with, mem::take, sync::Arc, sync::Mutex};
use tch::{Device, Kind, Tensor, no_grad};
use tch_parallel_base::lock;

/// The virtual ranks whose work this rank does.
#[derive(Debug)]
pub(super) struct VirtualRanks {
    pub(super) shard: Shard,
    /// By virtual rank, the rank that has it and its place there.
    owners: Vec<(usize, i64)>,
    /// The most that one rank has.
    pub(super) most: usize,
    state: Mutex<State>,
}

/// The model, and how far a step has come.
#[derive(Debug)]
struct State {
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// By bucket, a row of gradients for each virtual rank of the rank with most of them.
    rows: Vec<Tensor>,
    /// By share, each parameter's part of its rows.
    places: Vec<Vec<Tensor>>,
    step: Step,
}

/// What a share goes on with.
#[derive(Debug)]
pub(super) struct Context {
    buffers: Vec<Tensor>,
    generator: Tensor,
}

#[derive(Debug, Default)]
struct Step {
    /// The share that is under way, by its place; `None` between steps.
    share: Option<usize>,
    /// How many backward passes there were, and what the generators are seeded with after the last one.
    passes: usize,
    next_seed: i64,
    /// The parameters' gradients from before the step.
    earlier: Vec<Tensor>,
    /// The buffers as they were before the step, and as the first share has left them.
    before: Vec<Tensor>,
    after_first: Vec<Tensor>,
}

impl VirtualRanks {
    pub(super) fn new(
        count: usize,
        group: &ProcessGroup,
        parameters: &[Tensor],
        buffers: &[Tensor],
    ) -> Result<Arc<Self>> {
        let of = |rank| Shard::new(rank, group.world_size())?.with_virtual_ranks(count);
        let shards = (0..group.world_size()).map(of).collect::<Result<Vec<_>>>()?;
        let places = |(rank, shard): (usize, &Shard)| {
            (0..shard.parts()).map(move |place| (rank, place as i64))
        };
        Ok(Arc::new(VirtualRanks {
            shard: shards[group.rank()],
            owners: shards.iter().enumerate().flat_map(places).collect(),
            most: shards.iter().map(|shard| shard.parts()).max().unwrap_or(1),
            state: Mutex::new(State {
                parameters: parameters.iter().map(Tensor::shallow_clone).collect(),
                buffers: buffers.iter().map(Tensor::shallow_clone).collect(),
                rows: Vec::new(),
                places: Vec::new(),
                step: Step::default(),
            }),
        }))
    }

    /// Before a share's passes.
    pub(super) fn begin(&self, share: usize, seed: i64) -> Result<()> {
        let State { step, buffers, .. } = &mut *lock(&self.state);
        match share {
            0 => {
                let next_seed = seed.wrapping_add(self.owners.len() as i64);
                *step = Step { next_seed, before: copies(buffers), ..Default::default() };
            }
            1 if step.share == Some(0) => step.after_first = copies(buffers),
            _ => {}
        }
        // Every virtual rank begins with the same buffers.
        copy(buffers, &step.before)?;
        step.share = Some(share);
        IN_A_PART.set(self.most > 1);
        tch::manual_seed(seed.wrapping_add((self.shard.rank() + share) as i64));
        Ok(())
    }

    /// Whether the backward pass of the share under way exchanges gradients.
    pub(super) fn is_last_share(&self) -> Result<bool> {
        let Some(share) = lock(&self.state).step.share else {
            let found = "outside of DistributedDataParallel::shares";
            let what = "a pass with virtual_ranks";
            return Err(Error::argument(what, found, "for a share of a batch"));
        };
        Ok(share + 1 == self.shard.parts())
    }

    /// Whether there are rows: not before the first [`lay_out`](Self::lay_out), nor after one that has failed.
    pub(super) fn are_laid_out(&self) -> bool {
        !lock(&self.state).rows.is_empty()
    }

    /// Makes the rows for the reducer's buckets, of which each is given as the numbers of its parameters.
    pub(super) fn lay_out(&self, buckets: &[Vec<usize>], group: &ProcessGroup) -> Result<()> {
        let State { parameters, rows, places, step, .. } = &mut *lock(&self.state);
        // Freed before the new ones take memory.
        (*rows, *places) = Default::default();
        check(step.passes == 0, "a change of buckets", "between shares", "before the first one")?;
        let mut new_rows = Vec::new();
        let none = || parameters.iter().map(|_| Tensor::new()).collect::<Vec<_>>();
        let mut new_places: Vec<_> = (0..self.shard.parts()).map(|_| none()).collect();
        for bucket in buckets {
            let tensors: Vec<_> = bucket.iter().map(|&i| parameters[i].shallow_clone()).collect();
            let size = [self.most as i64, tensors.iter().map(|it| it.numel() as i64).sum()];
            let (kind, device) = (tensors[0].kind(), tensors[0].device());
            let new = match device == group.exchange_device() {
                true => group.allocate_tensor(&size, kind)?,
                false => Tensor::f_empty(size, (kind, device))?,
            };
            let _ = new.f_slice(0, self.shard.parts() as i64, None, 1)?.f_zero_()?;
            for (share, places) in new_places.iter_mut().enumerate() {
                let row = gradients_in(&new.f_get(share as i64)?, &tensors)?;
                bucket.iter().zip(row).for_each(|(&i, place)| places[i] = place);
            }
            new_rows.push(new);
        }
        (*rows, *places) = (new_rows, new_places);
        Ok(())
    }

    /// Before the backward pass of the last share, of which the reducer takes the gradients.
    pub(super) fn begin_last_backward(&self) -> Result<()> {
        let State { step, parameters, rows, .. } = &mut *lock(&self.state);
        expect_forward(rows)?;
        step.expect_passes(self.shard.parts() - 1)?;
        if step.earlier.is_empty() {
            // The reducer would take them for this share's.
            step.earlier = replace_grads(parameters, repeat_with(Tensor::new))?;
        }
        Ok(())
    }

    /// The backward pass of any other share.
    pub(super) fn backward(&self, loss: &Tensor) -> Result<()> {
        let State { step, parameters, rows, places, .. } = &mut *lock(&self.state);
        let share = step.passes;
        expect_forward(rows)?;
        step.expect_passes(step.share.unwrap_or_default())?;
        let before = replace_grads(parameters, repeat_with(Tensor::new))?;
        let outcome = backward_from(loss).map_err(Error::engine("backward"));
        let gradients = replace_grads(parameters, before)?;
        outcome?;
        let factor = self.factor();
        for (place, gradient) in places[share].iter().zip(gradients) {
            // With a dimension more, because the product of two numbers without one has the kind of both.
            let mut place = place.f_unsqueeze(0)?;
            let _ = match gradient.defined() {
                true => gradient.f_unsqueeze(0)?.f_mul_out(&place, &factor)?,
                false => place.f_zero_()?,
            };
        }
        step.passes += 1;
        Ok(())
    }

    /// Before the passes of all shares in step with each other.
    pub(super) fn begin_in_step(&self) -> Result<()> {
        let State { step, parameters, rows, .. } = &mut *lock(&self.state);
        rows.iter_mut().try_for_each(|rows| rows.f_zero_().map(drop))?;
        step.earlier = replace_grads(parameters, repeat_with(Tensor::new))?;
        Ok(())
    }

    /// What the running share must find again at its next turn, except its gradients.
    pub(super) fn context(&self) -> Result<Context> {
        let generator = rng_state(None).map_err(Error::engine("virtual_ranks"))?;
        Ok(Context { buffers: copies(&lock(&self.state).buffers), generator })
    }

    /// Lets a share run: with its gradients, its buffers and its generator.
    pub(super) fn enter(&self, share: usize, context: &Context) -> Result<()> {
        let State { parameters, buffers, places, .. } = &mut *lock(&self.state);
        replace_grads(parameters, places[share].iter().map(Tensor::shallow_clone))?;
        copy(buffers, &context.buffers)?;
        set_rng_state(None, &context.generator).map_err(Error::engine("virtual_ranks"))
    }

    /// After the passes of all shares in step: exchanges their gradients, and ends the step. A collective.
    pub(super) fn add_up(&self, group: &ProcessGroup, first: Context) -> Result<()> {
        let mut state = lock(&self.state);
        let State { step, parameters, rows, places, .. } = &mut *state;
        for rows in rows {
            let mut sum = rows.f_get(0)?.f_empty_like()?;
            self.sum(&rows.f_mul_(&self.factor())?, group, &mut sum)?;
            rows.f_get(0)?.f_copy_(&sum)?;
        }
        replace_grads(parameters, places[0].iter().map(Tensor::copy))?;
        step.after_first = first.buffers;
        drop(state);
        self.end_step()
    }

    /// After a loop over the shares: an abandoned step leaves gradients and buffers as they were, and the generators the
    /// same on all ranks.
    pub(super) fn end_shares(&self) -> Result<()> {
        IN_A_PART.set(false);
        let State { step, buffers, parameters, .. } = &mut *lock(&self.state);
        let Step { share, before, earlier, next_seed, .. } = take(step);
        share.iter().for_each(|_| tch::manual_seed(next_seed));
        replace_grads(parameters, earlier)?;
        copy(buffers, &before)
    }

    /// After a step: the buffers keep what the first share has left in them, gradients are added to earlier ones, and
    /// the generators are the same on all ranks.
    pub(super) fn end_step(&self) -> Result<()> {
        IN_A_PART.set(false);
        let State { step, buffers, parameters, .. } = &mut *lock(&self.state);
        let Step { after_first, earlier, next_seed, .. } = take(step);
        copy(buffers, &after_first)?;
        for (parameter, earlier) in parameters.iter().zip(earlier) {
            if earlier.defined() {
                let _ = no_grad(|| parameter.grad().f_add_(&earlier))?;
            }
        }
        tch::manual_seed(next_seed);
        Ok(())
    }

    /// The hook that adds the gradients of all virtual ranks to zero, one after the other.
    pub(super) fn hook(self: &Arc<Self>) -> Box<dyn CommHook> {
        let own = Arc::clone(self);
        let name = format!("virtual_ranks={}", self.owners.len());
        Box::new(from_fn(name, move |group, bucket| {
            let rows = own.rows_of(bucket)?;
            let is_shareable = rows.is_floating_point() && rows.device() == Device::Cpu;
            if is_shareable && group.transport() == Transport::SharedMemory {
                let group = group.later();
                let work = group.engine().add_rows(&rows, group.call());
                let sum = group.pending("backward", work, move |_| Ok(rows.f_get(0)?))?;
                return Ok(Box::new(move || sum.wait()));
            }
            let (own, group, mut sum) = (Arc::clone(&own), group.clone(), bucket.buffer()?);
            // Gathered only now, so that no more than one bucket of all ranks is in memory.
            Ok(Box::new(move || {
                own.sum(&rows, &group, &mut sum)?;
                Ok(sum)
            }))
        }))
    }

    /// A row of each virtual rank in their order, from this rank's. A collective.
    pub(super) fn gather(&self, rows: &Tensor, group: &ProcessGroup) -> Result<Vec<Tensor>> {
        // A rank with fewer than another repeats its last one, which nobody uses.
        let mut rows = rows.shallow_clone();
        if rows.size()[0] < self.most as i64 {
            let places = Tensor::f_arange(self.most as i64, (Kind::Int64, rows.device()))?;
            rows = rows.f_index_select(0, &places.f_clamp_max(rows.size()[0] - 1)?)?;
        }
        let ranks = if group.world_size() == 1 { vec![rows] } else { group.all_gather(&rows)? };
        self.owners.iter().map(|&(rank, place)| Ok(ranks[rank].f_get(place)?)).collect()
    }

    /// The sum of a bucket's rows of all virtual ranks, added to zero one after the other. A collective.
    fn sum(&self, rows: &Tensor, group: &ProcessGroup, sum: &mut Tensor) -> Result<()> {
        let _ = sum.f_zero_()?;
        let rows = self.gather(rows, group)?;
        rows.iter().try_for_each(|row| Ok(sum.f_add_(row).map(drop)?))
    }

    /// The rows of a bucket. A rank with fewer virtual ranks than another pads them with zeros.
    fn rows_of(&self, bucket: &GradBucket<'_>) -> Result<Tensor> {
        let State { step, rows, .. } = &mut *lock(&self.state);
        let last = self.shard.parts() - 1;
        step.expect_passes(last)?;
        let found = "started by the loss's own backward";
        let expected = "started by DistributedDataParallel::backward";
        check(!step.earlier.is_empty(), BACKWARD, found, expected)?;
        let rows = rows[bucket.index()].shallow_clone();
        let _ = bucket.buffer()?.f_mul_out(&rows.f_get(last as i64)?, &self.factor())?;
        Ok(rows)
    }

    /// What the reducer multiplies by without a hook.
    fn factor(&self) -> Tensor {
        Tensor::from(1.0 / self.owners.len() as f64)
    }
}

impl Step {
    /// Fails unless each share before this one had its backward pass, and this one none yet.
    fn expect_passes(&self, share: usize) -> Result<()> {
        let what = format_args!("the number of backward passes before that of share {share}");
        let expected = format_args!("{share}, one for each share of a batch");
        check(self.passes == share, what, self.passes, expected)
    }
}

/// Kernels add in another order on another number of threads, and only launchers of several ranks set it.
pub(super) fn set_num_threads() {
    if std::env::var_os("OMP_NUM_THREADS").is_none() {
        tch::set_num_threads(1);
    }
}

const BACKWARD: &str = "a backward pass with virtual_ranks";

/// Fails before the first forward pass, which makes the rows.
fn expect_forward(rows: &[Tensor]) -> Result<()> {
    check(!rows.is_empty(), BACKWARD, "run first", "run after a forward pass of the same model")
}

/// Returns the gradients from before.
fn replace_grads(
    parameters: &mut [Tensor],
    new: impl IntoIterator<Item = Tensor>,
) -> Result<Vec<Tensor>> {
    let before = parameters.iter().map(Tensor::grad).collect();
    let set = parameters.iter_mut().zip(new).try_for_each(|(own, new)| set_grad(own, &new));
    set.map(|()| before).map_err(Error::engine("virtual_ranks"))
}

fn copies(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::copy).collect()
}

fn copy(tensors: &[Tensor], from: &[Tensor]) -> Result<()> {
    let mut pairs = tensors.iter().zip(from);
    // A graph that has saved a buffer does not notice, as it does not notice that another share runs.
    no_grad(|| pairs.try_for_each(|(tensor, from)| Ok(tensor.f_data()?.f_copy_(from).map(drop)?)))
}
