//! Uneven inputs: a rank that runs out of inputs joins in the other ranks' collectives.
//!
//! `torch.distributed.algorithms.join`, with DistributedDataParallel's part of it.

use super::DistributedDataParallel;
use crate::distributed::fault::blame::failed_collective;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::{ReduceOp, Work};
use std::cell::Cell;
use std::fmt::Display;
use tch::Tensor;
use tch_parallel_base::options;

const OPERATION: &str = "join";

options! {
    /// PyTorch's keyword arguments of `DistributedDataParallel.join`, with its defaults.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JoinOptions {
        /// Whether gradients are always divided by the number of all ranks: every sample has the
        /// same weight, and steps with fewer ranks are smaller. Otherwise they are divided by the
        /// number of ranks that still train, and the samples of later steps have more weight. A
        /// communication hook does its own division, usually by the number of all ranks.
        pub divide_by_initial_world_size: bool = true,
        /// Whether training ends on all ranks, with an error, as soon as one runs out of inputs.
        pub throw_on_early_termination: bool = false,
    }
}

/// A model's state during a join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Joining {
    options: JoinOptions,
    /// Whether this rank has learned that another is out of inputs.
    terminated: bool,
}

impl<M> DistributedDataParallel<M> {
    /// Runs `training`, in which ranks may make different numbers of steps with this model. A
    /// collective. `with model.join():`
    ///
    /// A rank that finishes its training early takes part in the others' exchanges with zero
    /// gradients until all have finished. Then all ranks copy the parameters and buffers of a rank
    /// that trained to the end, the one with the highest number.
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
    /// The state of the optimizer is not shared afterwards: momentum comes from each rank's own
    /// steps. Neither is the state of a [`GradScaler`](crate::amp::GradScaler) or an
    /// [`LrScheduler`](crate::optim::lr_scheduler::LrScheduler): a rank that finished early has
    /// updated it less often. Do not call other collectives in `training`, since a rank without
    /// inputs does not know about them. So a model with [`SyncBatchNorm`](crate::nn::SyncBatchNorm)
    /// or a [`ZeroRedundancyOptimizer`](crate::optim::ZeroRedundancyOptimizer) needs
    /// `throw_on_early_termination`, which ends all ranks before the first step that one of them
    /// lacks.
    ///
    /// # Errors
    /// Those of `training`, which the other ranks learn about when this one ends. If the options
    /// ask for it, an error that names the rank without inputs. [`Error::Argument`] for a join
    /// within a join, or for a static graph if a rank made no step before.
    pub fn join<T, E>(
        &self,
        options: JoinOptions,
        training: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<Error> + Display,
    {
        let engine_failed = |error: c10d_sys::Error| self.failed(OPERATION, &error);
        let outcome = {
            let _joining = self.begin_join(options)?;
            let outcome = training();
            self.reducer.borrow_mut().set_forward_pass_work(None, true).map_err(engine_failed)?;
            // A rank that fails because of another has nothing to report.
            let terminated = self.joining.get().is_some_and(|joining| joining.terminated);
            if let Err(error) = &outcome
                && !terminated
                && !self.group.has_failed()
            {
                self.group.report(&error.to_string());
            }
            outcome?
        };
        let is_last = self.shadow_the_others(options)?;
        let source = self.common_rank(is_last)?;
        self.broadcast_state(source)?;
        Ok(outcome)
    }

    fn begin_join(&self, options: JoinOptions) -> Result<JoinGuard<'_>> {
        if self.joining.get().is_some() {
            let found = "called within a join of the same model";
            let expected = "called outside it: one join covers a whole training";
            return Err(Error::argument(OPERATION, found, expected));
        }
        self.reducer
            .borrow_mut()
            .set_uneven_input_join()
            .map_err(|error| self.failed(OPERATION, &error))?;
        self.joining.set(Some(Joining { options, terminated: false }));
        Ok(JoinGuard { joining: &self.joining })
    }

    /// Before a forward pass: tells the ranks without inputs that this one still has some.
    /// `Join.notify_join_context`
    pub(crate) fn notify_join_context(&self, joining: Joining) -> Result<()> {
        let work = self.announce(true)?;
        if joining.options.throw_on_early_termination && self.count(false)? > 0.0 {
            self.joining.set(Some(Joining { terminated: true, ..joining }));
            let message =
                "Detected at least one rank that exhausted inputs. Throwing across all ranks.";
            return Err(self.ended(message.into()));
        }
        self.reducer
            .borrow_mut()
            .set_forward_pass_work(Some(work), joining.options.divide_by_initial_world_size)
            .map_err(|error| self.failed(OPERATION, &error))
    }

    /// Before a forward pass: tells the ranks without inputs that this one still has some, or
    /// whether the backward pass will exchange gradients; that result only they need.
    /// `_check_global_requires_backward_grad_sync(is_joined_rank=False)`
    pub(crate) fn announce(&self, value: bool) -> Result<Work> {
        let flag = flag(&self.group, value);
        let work = self.group.engine().all_reduce(&flag, ReduceOp::Sum, self.group.later().call());
        work.map_err(|error| self.failed(OPERATION, &error))
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

    /// Mirrors the others' steps until all have finished. Returns whether this rank was among the
    /// last. `Join.__exit__`
    fn shadow_the_others(&self, options: JoinOptions) -> Result<bool> {
        let mut is_last = true;
        while self.count(false)? > 0.0 {
            if options.throw_on_early_termination {
                self.count(true)?;
                let rank = self.group.job_rank();
                return Err(self.ended(format!("Rank {rank} exhausted all inputs.")));
            }
            self.shadow_step()?;
            is_last = false;
        }
        Ok(is_last)
    }

    /// Mirrors every collective of another rank's step, in order. `_DDPJoinHook.main_hook`
    fn shadow_step(&self) -> Result<()> {
        let engine_failed = |error: c10d_sys::Error| self.failed(OPERATION, &error);
        let mut reducer = self.reducer.borrow_mut();
        if self.static_graph && reducer.needs_sink() {
            let steps = format!("the number of steps of rank {}", self.group.job_rank());
            let expected = "at least 1 with static_graph: the first backward pass learns the graph";
            let error = Error::argument(steps, "0", expected);
            self.group.report(&error.to_string());
            return Err(error);
        }
        reducer.rebuild_buckets().map_err(engine_failed)?;
        if self.syncs_buffers() {
            let source = self.common_rank(false)?;
            self.broadcast_buffers(source)?;
        }
        let sync = self.count(false)? > 0.0;
        self.sync_buffers.set(sync);
        if sync {
            reducer.shadow_backward().map_err(engine_failed)?;
        }
        Ok(())
    }

    /// The number of ranks whose flag is set.
    fn count(&self, own: bool) -> Result<f64> {
        let mut sum = flag(&self.group, own);
        self.group.on_host().all_reduce(&mut sum, ReduceOp::Sum)?;
        Ok(sum.f_double_value(&[0])?)
    }

    fn ended(&self, message: String) -> Error {
        failed_collective(self.group.job_rank(), OPERATION, message, None)
    }
}

/// Ends a join even if the training panics.
struct JoinGuard<'a> {
    joining: &'a Cell<Option<Joining>>,
}

impl Drop for JoinGuard<'_> {
    fn drop(&mut self) {
        self.joining.set(None);
    }
}

fn flag(group: &ProcessGroup, value: bool) -> Tensor {
    Tensor::from_slice(&[f32::from(u8::from(value))]).to(group.exchange_device())
}
