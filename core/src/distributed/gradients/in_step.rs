//! The passes of a rank's virtual ranks in step with each other, for layers that need all of them at once.

use super::shares::{Shares, share};
use super::virtual_ranks::{Context, VirtualRanks};
use super::{ddp::DistributedDataParallel, module_tensors::expect_unchanged};
use crate::distributed::collectives::{IN_A_PART, IN_STEP};
use crate::{Error, Result, Tensors, check, distributed::group::ProcessGroup};
use c10d_sys::{Turn, autograd::ThreadState, autograd::backward_from, in_turns};
use std::{ops::Range, rc::Rc, sync::Arc, sync::Mutex};
use tch::{Device, Tensor};
use tch_parallel_base::{lock, random::TAKES_TURNS};

impl<M: Send> DistributedDataParallel<M> {
    /// Both passes of all of this rank's [`virtual_ranks`](super::DdpOptions::virtual_ranks), in step with each other,
    /// as [`SyncBatchNorm`](crate::nn::SyncBatchNorm) needs it: its statistics are those of all virtual ranks.
    /// Returns the losses, for [`mean_of_shares`](Self::mean_of_shares). A collective. Only on the CPU.
    ///
    /// Batches and `seed` are as in [`shares`](Self::shares). `loss` makes a share's forward pass on a thread of its
    /// own, which waits in each such layer until all others have come as far; so it borrows no tensors, and the batch
    /// brings the labels. Gradients are exchanged after all passes, and the activations of all shares are in memory at
    /// once. A parameter that no loss depends on gets a gradient of zeros.
    ///
    /// ```
    /// use tch::{Kind, Tensor, nn::{self, ModuleT}};
    /// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
    /// use tch_parallel::nn::{BatchNormOptions, sync_batch_norm};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// let vs = nn::VarStore::new(group.device());
    /// let module = sync_batch_norm(vs.root(), 4, &group, BatchNormOptions::default());
    /// let options = DdpOptions { virtual_ranks: Some(3), ..Default::default() };
    /// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
    /// let batch = Tensor::arange(6, (Kind::Float, group.device())).unsqueeze(1).repeat([1, 4]);
    /// let losses = model.backward_shares(batch, 0, |norm, share| {
    ///     Ok(norm.f_forward_t(&share, true)?.mean(Kind::Float))
    /// })?;
    /// // 0 over all virtual ranks, and not over each of them.
    /// assert!(losses[0].double_value(&[]) < -0.5);
    /// assert!(model.mean_of_shares(&losses)?.double_value(&[]).abs() < 1e-6);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// What `loss` returns; [`Error::Argument`] for a batch that divides unevenly, on a GPU, without virtual ranks, for a
    /// `CheckpointWrapper` around a layer that exchanges, and as [`forward`](Self::forward); [`Error::Collective`] if a
    /// rank has died or did not arrive within the timeout.
    pub fn backward_shares<B: Tensors + Send>(
        &self,
        batch: B,
        seed: i64,
        loss: impl Fn(&M, B) -> Result<Tensor> + Sync,
    ) -> Result<Vec<Tensor>> {
        const WHAT: &str = "backward_shares";
        let group = &self.group;
        check(group.device() == Device::Cpu, WHAT, "called on a GPU", "called on the CPU")?;
        let none = || Error::argument(WHAT, "called without virtual_ranks", "called with them");
        let ranks = self.virtual_ranks.as_ref().ok_or_else(none)?;
        let is_alone = self.no_sync_guards.get() == 0 && self.join_config.options().is_none();
        check(is_alone, WHAT, "called with no_sync or in a join", "called without these")?;
        expect_unchanged(&self.wrapped)?;
        self.expect_no_gradients()?;
        let _ends = Shares(ranks);
        let (parts, step) = (ranks.shard.parts(), group.or_report(Step::new(ranks, group, seed))?);
        let settings = ThreadState::of_this_thread().map_err(Error::engine(WHAT))?;
        let batch = Mutex::new(batch);
        let losses = in_turns(self.module(), parts, |module, turn| {
            let place = turn.place;
            let passes = || {
                step.enter(place)?;
                let batch = share(&*lock(&batch), place, parts)?;
                let loss = loss(module, batch)?;
                backward_from(&loss).map_err(|error| group.failed_backward(error))?;
                step.leave(place)?;
                Ok(loss.detach())
            };
            // Here libtorch takes over the number of threads, before an operator asks one of its libraries.
            tch::get_num_threads();
            IN_A_PART.set(ranks.tree.most(Range::len) > 1);
            TAKES_TURNS.set(true);
            let own = Arc::clone(&step);
            IN_STEP.set(Some(Rc::new(move |group, tensor| own.exchange(&turn, group, tensor))));
            let loss = settings.run(|| group.or_report_first(passes()));
            IN_STEP.take();
            loss.map_err(Error::engine(WHAT))?
        });
        let losses = group.or_report_first(losses.map_err(Error::engine(WHAT)).flatten())?;
        let contexts = lock(&step.shares).drain(..).map(|share| share.context).collect();
        group.or_report_first(ranks.add_up(group, contexts))?;
        self.sync_buffers()?;
        self.sync_buffers.set(false);
        Ok(losses)
    }
}

/// How far the shares of a rank have come.
struct Step {
    ranks: Arc<VirtualRanks>,
    group: ProcessGroup,
    shares: Mutex<Vec<Progress>>,
}

struct Progress {
    context: Context,
    /// The share's tensor for the next exchange, and what it got in the last one.
    brings: Option<Tensor>,
    gets: Option<Vec<Tensor>>,
}

impl Step {
    fn new(ranks: &Arc<VirtualRanks>, group: &ProcessGroup, seed: i64) -> Result<Arc<Self>> {
        let progress = |share| {
            ranks.begin(share, seed)?;
            Ok(Progress { context: ranks.context()?, brings: None, gets: None })
        };
        let shares = (0..ranks.shard.parts()).map(progress).collect::<Result<_>>()?;
        let (ranks, group, shares) = (Arc::clone(ranks), group.clone(), Mutex::new(shares));
        Ok(Arc::new(Step { ranks, group, shares }))
    }

    fn enter(&self, place: usize) -> Result<()> {
        self.ranks.enter(&mut lock(&self.shares)[place].context)
    }

    fn leave(&self, place: usize) -> Result<()> {
        lock(&self.shares)[place].context = self.ranks.context()?;
        Ok(())
    }

    /// A tensor of each virtual rank of the job, in their order. The last of this rank's shares to come here exchanges.
    fn exchange(&self, turn: &Turn, group: &ProcessGroup, own: &Tensor) -> Result<Vec<Tensor>> {
        const WHAT: &str = "an exchange between virtual ranks";
        let is_same = Arc::ptr_eq(&group.inner, &self.group.inner);
        check(is_same, WHAT, "made in another group", "made in that of the model")?;
        self.leave(turn.place)?;
        let mut shares = lock(&self.shares);
        shares[turn.place].brings = Some(own.shallow_clone());
        if shares.iter().all(|share| share.brings.is_some()) {
            let own: Vec<_> = shares.iter_mut().filter_map(|share| share.brings.take()).collect();
            let all = self.ranks.gather(&Tensor::f_stack(&own, 0)?, group)?;
            let copies = || all.iter().map(Tensor::shallow_clone).collect();
            shares.iter_mut().for_each(|share| share.gets = Some(copies()));
        }
        drop(shares);
        turn.pass();
        self.enter(turn.place)?;
        let all = lock(&self.shares)[turn.place].gets.take();
        let expected = "made by each share, and another one has failed or ended";
        all.ok_or_else(|| Error::argument(WHAT, "made by this share", expected))
    }
}
