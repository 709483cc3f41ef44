//! Gradients whose bits do not depend on the number of ranks: DistributedDataParallel's `virtual_ranks`.

use super::ddp::DistributedDataParallel;
use super::hooks::{CommHook, GradBucket, from_fn};
use crate::data::Shard;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result, Tensors};
use c10d_sys::arithmetic::mul_number_;
use c10d_sys::tensor::identity;
use std::cell::Cell;
use std::mem::{replace, take};
use std::sync::{Arc, Mutex};
use tch::{Tensor, no_grad};
use tch_parallel_base::lock;
use tch_parallel_base::tensors::{fill, list};

/// The virtual ranks whose work this rank does.
#[derive(Debug)]
pub(super) struct VirtualRanks {
    shard: Shard,
    /// By virtual rank, the rank that has it and its place there.
    owners: Vec<(usize, i64)>,
    /// How many the rank with most of them has.
    most: usize,
    state: Mutex<State>,
}

/// The model, and how far a step has come.
#[derive(Debug)]
struct State {
    parameters: Vec<Tensor>,
    buffers: Vec<Tensor>,
    step: Step,
}

#[derive(Debug, Default)]
struct Step {
    /// The share that is under way, by its place; `None` between steps.
    share: Option<usize>,
    /// Whether its first forward pass has begun.
    has_begun: bool,
    /// The gradients of the shares before it, one for each parameter.
    gradients: Vec<Vec<Tensor>>,
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
            let parts = shard.parts();
            (0..parts).map(move |place| (rank, place as i64))
        };
        // Kernels add in another order on another number of threads, and only launchers of several ranks set it.
        if std::env::var_os("OMP_NUM_THREADS").is_none() {
            tch::set_num_threads(1);
        }
        Ok(Arc::new(VirtualRanks {
            shard: shards[group.rank()],
            owners: shards.iter().enumerate().flat_map(places).collect(),
            most: shards.iter().map(|shard| shard.parts()).max().unwrap_or(1),
            state: Mutex::new(State {
                parameters: parameters.iter().map(Tensor::shallow_clone).collect(),
                buffers: buffers.iter().map(Tensor::shallow_clone).collect(),
                step: Step::default(),
            }),
        }))
    }

    /// Before a share's passes.
    fn begin(&self, share: usize, seed: i64) {
        let step = &mut lock(&self.state).step;
        if share == 0 {
            *step = Step::default();
        }
        (step.share, step.has_begun) = (Some(share), false);
        IN_A_PART.set(self.most > 1);
        tch::manual_seed(seed.wrapping_add((self.shard.rank() + share) as i64));
    }

    /// Before a forward pass. Returns whether the backward pass after it exchanges gradients.
    pub(super) fn begin_forward(&self) -> Result<bool> {
        let State { step, buffers, .. } = &mut *lock(&self.state);
        let Some(share) = step.share else {
            let found = "outside of DistributedDataParallel::shares";
            let what = "a forward pass with virtual_ranks";
            return Err(Error::argument(what, found, "for a share of a batch"));
        };
        // Every virtual rank begins with the same buffers.
        if !replace(&mut step.has_begun, true) {
            match share {
                0 => step.before = copies(buffers),
                1 => step.after_first = copies(buffers),
                _ => {}
            }
            copy(buffers, &step.before)?;
        }
        Ok(share + 1 == self.shard.parts())
    }

    /// The backward pass of a share, unless it is the last one, of which the reducer takes the gradients.
    pub(super) fn backward(&self, loss: &Tensor) -> Result<bool> {
        let State { step, parameters, .. } = &mut *lock(&self.state);
        if step.share.is_none_or(|share| share + 1 == self.shard.parts()) {
            return Ok(false);
        }
        // Not into the parameters' own gradients, to which the next share's would be added.
        step.gradients.push(Tensor::f_run_backward(&[loss], parameters, false, false)?);
        Ok(true)
    }

    /// After a step: the buffers keep what the first share has left in them.
    pub(super) fn end_step(&self) -> Result<()> {
        IN_A_PART.set(false);
        let State { step, buffers, .. } = &mut *lock(&self.state);
        copy(buffers, &take(step).after_first)
    }

    /// The tensors of all virtual ranks, of each of which a rank has a row.
    fn in_order(&self, ranks: &[Tensor]) -> Result<Vec<Tensor>> {
        self.owners.iter().map(|&(rank, place)| Ok(ranks[rank].f_get(place)?)).collect()
    }

    /// The hook that adds the gradients of all virtual ranks, one after the other.
    pub(super) fn hook(self: &Arc<Self>) -> Box<dyn CommHook> {
        let own = Arc::clone(self);
        let name = format!("virtual_ranks={}", self.owners.len());
        Box::new(from_fn(name, move |group, bucket| {
            let gathered = group.all_gather_async(own.rows_of(bucket)?)?;
            let own = Arc::clone(&own);
            Ok(Box::new(move || {
                let parts = own.in_order(&gathered.wait()?)?;
                let mut sum = parts[0].f_zeros_like()?;
                parts.iter().try_for_each(|part| sum.f_add_(part).map(drop))?;
                Ok(sum)
            }))
        }))
    }

    /// The gradients of a bucket, divided by the number of all virtual ranks: a row for each of this rank's.
    fn rows_of(&self, bucket: &GradBucket<'_>) -> Result<Tensor> {
        let State { step, parameters, .. } = &mut *lock(&self.state);
        let last = self.shard.parts() - 1;
        if step.gradients.len() != last {
            let what = "the number of backward passes with virtual_ranks";
            let expected = format!("{}, one for each share of a batch", last + 1);
            return Err(Error::argument(what, step.gradients.len() + 1, expected));
        }
        let buffer = bucket.buffer()?;
        let size = [self.most as i64, buffer.numel() as i64];
        let mut rows = Tensor::f_zeros(size, (buffer.kind(), buffer.device()))?;
        rows.f_get(last as i64)?.f_copy_(&buffer)?;
        for (view, parameter) in bucket.gradients()?.iter().zip(bucket.parameters()?) {
            let is_it = |own: &Tensor| identity(own) == identity(&parameter);
            let Some(index) = parameters.iter().position(is_it) else { continue };
            let bytes = view.data_ptr() as usize - buffer.data_ptr() as usize;
            let begin = (bytes / view.kind().elt_size_in_bytes()) as i64;
            for (row, gradients) in (0..).zip(&mut step.gradients) {
                // Freed as soon as it is in the row.
                let gradient = replace(&mut gradients[index], Tensor::new());
                if gradient.defined() {
                    let place = rows.f_get(row)?.f_narrow(0, begin, view.numel() as i64)?;
                    place.f_as_strided(view.size(), view.stride(), None)?.f_copy_(&gradient)?;
                }
            }
        }
        // As the reducer does without a hook.
        mul_number_(&mut rows, 1.0 / self.owners.len() as f64)?;
        Ok(rows)
    }
}

fn copies(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::copy).collect()
}

fn copy(tensors: &[Tensor], from: &[Tensor]) -> Result<()> {
    let mut pairs = tensors.iter().zip(from);
    no_grad(|| {
        pairs.try_for_each(|(tensor, from)| Ok(tensor.shallow_clone().f_copy_(from).map(drop)?))
    })
}

thread_local! {
    /// Whether this thread computes for one of several virtual ranks, while the others wait.
    static IN_A_PART: Cell<bool> = const { Cell::new(false) };
}

/// Refuses what would need all virtual ranks at once.
pub(crate) fn refuse_in_a_part(what: &str) -> Result<()> {
    if IN_A_PART.get() {
        let expected =
            "used with as many ranks as virtual ranks: a rank computes for one after the other";
        return Err(Error::argument(what, "used in a share of virtual_ranks", expected));
    }
    Ok(())
}

impl<M> DistributedDataParallel<M> {
    /// The parts of a batch, each for one of this rank's [`virtual_ranks`](super::DdpOptions::virtual_ranks); without these,
    /// the batch itself. Each must have a forward pass and a [`backward`](Self::backward), and the last one's exchanges
    /// the gradients of all.
    ///
    /// A batch has equally many samples for each virtual rank, in the order of a sampler of
    /// [`Shard::with_virtual_ranks`]. The random generators draw for virtual rank `v` as after
    /// `manual_seed(seed + v)`, so take another `seed` in each step.
    ///
    /// ```
    /// use tch::{Kind, Tensor, nn::{self, ModuleT}};
    /// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let vs = nn::VarStore::new(group.device());
    /// let module = nn::linear(vs.root(), 4, 1, Default::default());
    /// let options = DdpOptions { virtual_ranks: Some(3), ..Default::default() };
    /// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
    /// let batch = Tensor::arange(6, (Kind::Float, group.device())).unsqueeze(1).repeat([1, 4]);
    /// for share in model.shares(batch, 0)? {
    ///     assert_eq!(share.size(), [2, 4]);
    ///     model.backward(&model.forward_t(&share, true).mean(Kind::Float))?;
    /// }
    /// let gradient = vs.variables()["weight"].grad(); // the mean over all: 2.5 everywhere
    /// assert!(gradient.allclose(&gradient.full_like(2.5), 1e-5, 0.0, false));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a batch that cannot be divided evenly.
    pub fn shares<B: Tensors>(&self, batch: B, seed: i64) -> Result<impl Iterator<Item = B>> {
        let ranks = self.virtual_ranks.as_deref();
        let parts = ranks.map_or(1, |ranks| ranks.shard.parts()) as i64;
        let of = |part: i64| {
            let tensors = list(&batch).into_iter().map(|tensor| {
                let rows = tensor.size().first().copied().unwrap_or(0);
                if rows % parts != 0 {
                    let expected = format!("a multiple of {parts}, this rank's virtual ranks");
                    return Err(Error::argument(
                        "the number of samples in a batch",
                        rows,
                        expected,
                    ));
                }
                Ok(tensor.f_slice(0, part, None, parts)?.f_contiguous()?)
            });
            Ok(fill(&batch, tensors.collect::<Result<Vec<_>>>()?))
        };
        let shares = match parts {
            1 => vec![batch],
            _ => (0..parts).map(of).collect::<Result<Vec<_>>>()?,
        };
        let begin = move |place| ranks.into_iter().for_each(|ranks| ranks.begin(place, seed));
        Ok(shares.into_iter().enumerate().map(move |(place, share)| {
            begin(place);
            share
        }))
    }

    /// The mean of a number over all virtual ranks, from those of this rank's shares: the same bits on every rank and
    /// with any number of them. A collective. Without virtual ranks, the mean of `shares`.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank has died or did not arrive within the timeout.
    pub fn mean_of_shares(&self, shares: &[Tensor]) -> Result<Tensor> {
        let mut numbers = Tensor::f_stack(shares, 0)?.detach();
        if let Some(ranks) = &self.virtual_ranks {
            let padding = [0, ranks.most as i64 - shares.len() as i64];
            let padded = numbers.f_constant_pad_nd(padding)?;
            numbers = Tensor::f_stack(&ranks.in_order(&self.group.all_gather(&padded)?)?, 0)?;
        }
        Ok(numbers.f_mean(None)?)
    }
}
