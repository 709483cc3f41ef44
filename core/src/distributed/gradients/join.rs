//! DistributedDataParallel's part of a join. `_DDPJoinHook`

use super::{DistributedDataParallel, buffer_comm_hook::BufferCommHookLocation};
use crate::distributed::join::{JoinConfig, JoinOptions, Joinable, OPERATION, count, join};
use crate::{Error, Result, check, distributed::group::ProcessGroup};
use c10d_sys::ReduceOp;
use std::fmt::Display;
use tch::Tensor;

impl<M> DistributedDataParallel<M> {
    /// Runs `training`: ranks may make different numbers of steps with this model. A collective. `with model.join():`
    ///
    /// A rank that finishes early takes part in the others' exchanges with zero gradients until all have finished. Then
    /// all ranks copy the parameters and buffers of a rank that trained to the end, the one with the highest number.
    ///
    /// ```
    /// # use tch::{Kind, Tensor, nn};
    /// # use tch_parallel::distributed::{DistributedDataParallel, JoinOptions, ProcessGroup};
    /// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
    /// # let group = ProcessGroup::from_env()?;
    /// # let vs = nn::VarStore::new(group.device());
    /// # let module = nn::linear(vs.root(), 4, 1, Default::default());
    /// # let model = DistributedDataParallel::new(module, &vs, &group)?;
    /// # let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.01, ..Default::default() })?;
    /// # let ones = |size: [i64; 2]| Tensor::ones(size, (Kind::Float, group.device()));
    /// # let batches = vec![(ones([8, 4]), ones([8, 1])), (ones([2, 4]), ones([2, 1]))];
    /// let steps = model.join(JoinOptions::default(), || {
    ///     let mut steps = 0;
    ///     for (inputs, targets) in &batches {
    ///         let loss = model.f_forward_t(inputs, true)?.mse_loss(targets, tch::Reduction::Mean);
    ///         optimizer.zero_grad()?;
    ///         model.backward(&loss)?;
    ///         optimizer.step()?;
    ///         steps += 1;
    ///     }
    ///     Ok::<_, tch_parallel::Error>(steps)
    /// })?;
    /// assert_eq!(steps, batches.len()); // of this rank; another may have made more or fewer
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// The [join](fn@join) of this model alone. Others take more: a
    /// [`ZeroRedundancyOptimizer`](crate::optim::ZeroRedundancyOptimizer), say.
    ///
    /// The state of the optimizer is not shared afterwards: momentum comes from each rank's own steps. Neither is the
    /// state of a [`GradScaler`](crate::amp::GradScaler) or an
    /// [`LrScheduler`](crate::optim::lr_scheduler::LrScheduler): a rank that finished early has updated it less often.
    /// Do not call other collectives in `training`, since a rank without inputs does not know about them. So a model
    /// with [`SyncBatchNorm`](crate::nn::SyncBatchNorm) needs `throw_on_early_termination`, which ends all ranks before
    /// the first step that one of them lacks.
    ///
    /// # Errors
    /// Those of [`join`](fn@join), and [`Error::Argument`] for options of the model that a rank without
    /// inputs cannot follow, and for a static graph if a rank made no step before.
    pub fn join<T, E: From<Error> + Display>(
        &self,
        options: JoinOptions,
        training: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        join([self], options, |_| training())
    }

    /// What a rank without inputs cannot follow. The engine has no zeros for a bucket whose gradients are sparse.
    pub(crate) fn refuse_in_join(&self) -> Result<()> {
        let found = "set for a model within a join";
        let expected = "unset: a rank without inputs has no such gradients to send";
        check(!self.has_sparse_gradients, "sparse_gradients", found, expected)?;
        check(self.virtual_ranks.is_none(), "virtual_ranks", found, expected)?;
        check(self.delayed.is_none(), "delay_all_reduce_named_params", found, expected)?;
        let expected =
            "unset: a rank without inputs reduces every bucket, also those that others skip";
        check(!self.skips_unused_buckets, "skip_all_reduce_unused_params", found, expected)?;
        let expected = "at PreForward: a rank without inputs ends no forward pass";
        let hook = self.buffer_comm_hook.as_ref().map(|hook| hook.borrow().location);
        let is_before = hook != Some(BufferCommHookLocation::PostForward);
        check(is_before, "buffer_comm_hook", found, expected)
    }

    /// The candidate with the highest rank, the same on all ranks. `_find_common_rank`
    pub(crate) fn common_rank(&self, is_candidate: bool) -> Result<usize> {
        let own = if is_candidate { self.group.rank() as i64 } else { -1 };
        let mut highest = Tensor::from_slice(&[own]).to(self.group.exchange_device());
        self.group.on_host().all_reduce(&mut highest, ReduceOp::Max)?;
        usize::try_from(highest.f_int64_value(&[0])?).map_err(|_| {
            self.group.failed_here(OPERATION, "no rank is left that has a model to share")
        })
    }
}

impl<M> Joinable for &DistributedDataParallel<M> {
    fn join_process_group(&self) -> &ProcessGroup {
        &self.group
    }

    fn join_config(&self) -> &JoinConfig {
        &self.join_config
    }

    /// Forward and backward pass.
    fn main_hook(&mut self) -> Result<()> {
        let engine_failed = |error: c10d_sys::Error| self.failed(OPERATION, &error);
        let mut reducer = self.reducer.borrow_mut();
        let knows_graph = !self.static_graph || !reducer.needs_sink();
        let steps = format!("the number of steps of rank {}", self.group.job_rank());
        let expected = "at least 1 with static_graph: the first backward pass learns the graph";
        check(knows_graph, steps, "0", expected)?;
        self.refuse_in_join()?;
        reducer.rebuild_buckets().map_err(engine_failed)?;
        self.sync_buffers_at(BufferCommHookLocation::PreForward, Some(false))?;
        let sync = count(&self.group, false)? > 0.0;
        self.sync_buffers.set(sync);
        if sync {
            reducer.shadow_backward().map_err(engine_failed)?;
        }
        Ok(())
    }

    fn post_hook(&mut self, is_last_joiner: bool) -> Result<()> {
        self.restore_parameters()?;
        self.broadcast_state(self.common_rank(is_last_joiner)?)
    }
}
