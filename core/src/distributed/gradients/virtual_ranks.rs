//! Gradients whose bits do not depend on the number of ranks: DistributedDataParallel's `virtual_ranks`.

use super::hooks::{CommHook, GradBucket, from_fn, gradients_in};
use super::tree::Tree;
use crate::distributed::collectives::{IN_A_PART, Pending};
use crate::distributed::{fsdp::gathering::shares_memory, group::ProcessGroup};
use crate::{Error, Result, check, data::Shard};
use c10d_sys::random::{rng_state, set_rng_state};
use c10d_sys::{arithmetic::add_product_, autograd::backward_from, tensor::set_grad};
use std::{iter::repeat_with, mem::replace, mem::take, ops::Range, sync::Arc, sync::Mutex};
use tch::{Kind, Tensor, no_grad};
use tch_parallel_base::lock;

/// The virtual ranks whose work this rank does.
pub(super) struct VirtualRanks {
    pub(super) shard: Shard,
    pub(super) tree: Tree,
    /// The most rows that this rank has after any of its shares, or that any rank has at the end.
    most_rows: usize,
    state: Mutex<State>,
}

/// The model, and how far a step has come.
struct State {
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// By bucket, rows with the sums of shares.
    rows: Vec<Tensor>,
    /// By row, each parameter's part of it.
    places: Vec<Vec<Tensor>>,
    step: Step,
}

/// What a share goes on with.
pub(super) struct Context {
    gradients: Vec<Tensor>,
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
    /// The bucket that is gathered from all ranks, and where its sum belongs.
    in_flight: Option<(Tensor, Pending<Vec<Tensor>>)>,
}

impl VirtualRanks {
    pub(super) fn new(
        count: usize,
        group: &ProcessGroup,
        parameters: Vec<Tensor>,
        buffers: Vec<Tensor>,
    ) -> Result<Arc<Self>> {
        let tree = Tree::new(count, group.world_size())?;
        let own = &tree.ranks[group.rank()];
        let after_shares = own.clone().map(|last| tree.rows(&(own.start..last + 1)));
        let (rows, places, step) = Default::default();
        Ok(Arc::new(VirtualRanks {
            shard: Shard::from(group).with_virtual_ranks(count)?,
            most_rows: after_shares.max().max(Some(tree.most_rows())).unwrap_or(1),
            tree,
            state: Mutex::new(State { parameters, buffers, rows, places, step }),
        }))
    }

    /// Before a share's passes.
    pub(super) fn begin(&self, share: usize, seed: i64) -> Result<()> {
        let State { step, buffers, .. } = &mut *lock(&self.state);
        match share {
            0 => {
                let next_seed = seed.wrapping_add(self.tree.all().len() as i64);
                *step = Step { next_seed, before: copies(buffers), ..Default::default() };
            }
            1 if step.share == Some(0) => step.after_first = copies(buffers),
            _ => {}
        }
        // Every virtual rank begins with the same buffers.
        copy(buffers, &step.before)?;
        step.share = Some(share);
        IN_A_PART.set(self.tree.most(Range::len) > 1);
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
        let mut new_places: Vec<_> = (0..self.most_rows).map(|_| none()).collect();
        for bucket in buckets {
            let tensors: Vec<_> = bucket.iter().map(|&i| parameters[i].shallow_clone()).collect();
            let numbers = tensors.iter().map(|it| it.numel() as i64).sum();
            let size = [new_places.len() as i64, numbers];
            let (kind, device) = (tensors[0].kind(), tensors[0].device());
            let mut new = match device == group.exchange_device() {
                true => group.allocate_tensor(&size, kind)?,
                false => Tensor::f_empty(size, (kind, device))?,
            };
            // A rank with fewer rows than another sends what they hold.
            let _ = new.f_zero_()?;
            for (row, places) in new_places.iter_mut().enumerate() {
                let gradients = gradients_in(&new.f_get(row as i64)?, &tensors)?;
                bucket.iter().zip(gradients).for_each(|(&i, place)| places[i] = place);
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
        // The reducer would take them for this share's.
        step.set_earlier_aside(parameters)
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
        // Counted first: if adding fails, no retry may add twice.
        step.passes += 1;
        let mut gradients = gradients.into_iter().enumerate();
        gradients.try_for_each(|(i, gradient)| {
            self.add(share, gradient, |row| Ok(places[row][i].shallow_clone()))
        })
    }

    /// Adds a share's gradient to the earlier ones'. `place(row)` is its part of a row.
    fn add(
        &self,
        share: usize,
        mut gradient: Tensor,
        place: impl Fn(usize) -> Result<Tensor>,
    ) -> Result<()> {
        if !gradient.defined() {
            gradient = place(0)?.f_zeros_like()?;
        }
        let (before, after) = (self.rows_after(share), self.rows_after(share + 1));
        // What the reducer multiplies by without a hook.
        let factor = 1.0 / self.tree.all().len() as f64;
        if before < after {
            // With a dimension more, because the product of two numbers without one has the kind of both.
            let place = place(before)?.f_unsqueeze(0)?;
            let _ = gradient.f_unsqueeze(0)?.f_mul_out(&place, &Tensor::from(factor))?;
            return Ok(());
        }
        // The share completes a branch, and perhaps larger ones.
        let mut right = place(before - 1)?;
        add_product_(&mut right, &gradient, factor)?;
        for row in (after - 1..before - 1).rev() {
            let mut left = place(row)?;
            let _ = left.f_add_(&right)?;
            right = left;
        }
        Ok(())
    }

    /// The number of rows of this rank's first shares.
    fn rows_after(&self, shares: usize) -> usize {
        self.tree.rows(&(self.shard.rank()..self.shard.rank() + shares))
    }

    /// Takes what the running share needs again at its next turn. Before its first turn, there are no gradients.
    pub(super) fn context(&self) -> Result<Context> {
        let State { step, parameters, buffers, .. } = &mut *lock(&self.state);
        step.set_earlier_aside(parameters)?;
        let gradients = replace_grads(parameters, repeat_with(Tensor::new))?;
        let generator = rng_state(None).map_err(Error::engine("virtual_ranks"))?;
        Ok(Context { gradients, buffers: copies(buffers), generator })
    }

    /// Lets a share run: with its gradients, its buffers and its generator.
    pub(super) fn enter(&self, context: &mut Context) -> Result<()> {
        let State { parameters, buffers, .. } = &mut *lock(&self.state);
        replace_grads(parameters, take(&mut context.gradients))?;
        copy(buffers, &context.buffers)?;
        set_rng_state(None, &context.generator).map_err(Error::engine("virtual_ranks"))
    }

    /// After the passes of all shares in step: exchanges their gradients, and ends the step. A collective.
    pub(super) fn add_up(&self, group: &ProcessGroup, mut shares: Vec<Context>) -> Result<()> {
        let mut state = lock(&self.state);
        let mut gradients = Vec::new();
        for (i, parameter) in state.parameters.iter().enumerate() {
            let zeros = |_| parameter.f_zeros_like();
            let rows: Vec<_> = (0..self.most_rows).map(zeros).collect::<Result<_, _>>()?;
            for (share, context) in shares.iter_mut().enumerate() {
                let gradient = replace(&mut context.gradients[i], Tensor::new());
                self.add(share, gradient, |row| Ok(rows[row].shallow_clone()))?;
            }
            let mut gradient = parameter.f_empty_like()?;
            let sums = Tensor::f_stack(&rows[..self.tree.most_rows()], 0)?;
            gradient.f_copy_(&self.tree.sum(&group.all_gather(&sums)?)?)?;
            gradients.push(gradient);
        }
        replace_grads(&mut state.parameters, gradients)?;
        state.step.after_first = shares.swap_remove(0).buffers;
        drop(state);
        self.end_step()
    }

    /// After a loop over the shares: an abandoned step leaves gradients and buffers as they were, and the generators the
    /// same on all ranks.
    pub(super) fn end_shares(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let Step { share, before, earlier, next_seed, .. } = state.take_step();
        let State { buffers, parameters, .. } = &mut *state;
        share.iter().for_each(|_| tch::manual_seed(next_seed));
        replace_grads(parameters, earlier)?;
        copy(buffers, &before)
    }

    /// After a step: the buffers keep what the first share has left in them, gradients are added to earlier ones, and
    /// the generators are the same on all ranks.
    pub(super) fn end_step(&self) -> Result<()> {
        let mut state = lock(&self.state);
        let Step { after_first, earlier, next_seed, .. } = state.take_step();
        let State { buffers, parameters, .. } = &mut *state;
        copy(buffers, &after_first)?;
        for (parameter, earlier) in parameters.iter().zip(earlier) {
            if earlier.defined() {
                let _ = no_grad(|| parameter.grad().f_add_(&earlier))?;
            }
        }
        tch::manual_seed(next_seed);
        Ok(())
    }

    /// The hook that adds the gradients of all virtual ranks.
    pub(super) fn hook(self: &Arc<Self>) -> Box<dyn CommHook> {
        let own = Arc::clone(self);
        let name = format!("virtual_ranks={}", self.tree.all().len());
        Box::new(from_fn(name, move |group, bucket| {
            let rows = own.rows_of(bucket)?;
            if shares_memory(group, &rows) {
                let work = group.engine().add_rows(&rows, own.tree.all().len(), group.call());
                let sum = group.pending("backward", work, move |_| Ok(rows.f_get(0)?))?;
                return Ok(Box::new(move || sum.wait()));
            }
            // Ends the bucket before it, so that no more than one of all ranks is in memory.
            own.finish_sum()?;
            if group.world_size() > 1 {
                let gathered = group.all_gather_async(rows.shallow_clone())?;
                lock(&own.state).step.in_flight = Some((rows.f_get(0)?, gathered));
            }
            let own = Arc::clone(&own);
            Ok(Box::new(move || own.finish_sum().and_then(|()| Ok(rows.f_get(0)?))))
        }))
    }

    /// Waits for the bucket that is under way, if there is one, and puts its sum into its first row.
    fn finish_sum(&self) -> Result<()> {
        let in_flight = lock(&self.state).step.in_flight.take();
        let Some((mut sum, gathered)) = in_flight else { return Ok(()) };
        Ok(sum.f_copy_(&self.tree.sum(&gathered.wait()?)?)?)
    }

    /// A row of each virtual rank in their order, from this rank's. A collective.
    pub(super) fn gather(&self, rows: &Tensor, group: &ProcessGroup) -> Result<Vec<Tensor>> {
        // A rank with fewer than another repeats its last one, which nobody uses.
        let places =
            Tensor::f_arange(self.tree.most(Range::len) as i64, (Kind::Int64, rows.device()))?;
        let rows = rows.f_index_select(0, &places.f_clamp_max(rows.size()[0] - 1)?)?;
        self.tree.rows_of(&group.all_gather(&rows)?, Range::len)
    }

    /// Adds the last share's gradients to a bucket's rows, and returns those to exchange.
    fn rows_of(&self, bucket: &GradBucket<'_>) -> Result<Tensor> {
        let State { step, rows, .. } = &mut *lock(&self.state);
        let last = self.shard.parts() - 1;
        step.expect_passes(last)?;
        let found = "started by the loss's own backward";
        let expected = "started by DistributedDataParallel::backward";
        check(!step.earlier.is_empty(), BACKWARD, found, expected)?;
        let rows = &rows[bucket.index()];
        self.add(last, bucket.buffer()?, |row| Ok(rows.f_get(row as i64)?))?;
        Ok(rows.f_narrow(0, 0, self.tree.most_rows() as i64)?)
    }
}

impl State {
    /// Ends the step. If it fails, an exchange may still read its rows, which nobody may write to then.
    fn take_step(&mut self) -> Step {
        IN_A_PART.set(false);
        if self.step.in_flight.is_some() {
            self.rows.clear();
        }
        take(&mut self.step)
    }
}

impl Step {
    /// Fails unless each share before this one had its backward pass, and this one none yet.
    fn expect_passes(&self, share: usize) -> Result<()> {
        let what = format_args!("the number of backward passes before that of share {share}");
        let expected = format_args!("{share}, one for each share of a batch");
        check(self.passes == share, what, self.passes, expected)
    }

    fn set_earlier_aside(&mut self, parameters: &mut [Tensor]) -> Result<()> {
        if self.earlier.is_empty() {
            self.earlier = replace_grads(parameters, repeat_with(Tensor::new))?;
        }
        Ok(())
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
