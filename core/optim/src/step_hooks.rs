//! Functions that run before or after each step: `register_step_pre_hook` and `register_step_post_hook`.

use super::{Optimizer, ParamGroupOptimizer, UpdateRule};
use crate::Result;
use std::fmt::{self, Debug};

type StepHook = Box<dyn FnMut(&mut dyn Optimizer) -> Result<()> + Send>;
/// The places of an optimizer's hooks.
pub(super) const BEFORE: usize = 0;
pub(super) const AFTER: usize = 1;

/// In the order in which they were registered.
#[derive(Default)]
pub(super) struct StepHooks(Vec<StepHook>);

impl Debug for StepHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} hooks", self.0.len())
    }
}

impl<R: UpdateRule> ParamGroupOptimizer<R> {
    /// Calls `hook` before each step: `optimizer.register_step_pre_hook(hook)`. A step that `GradScaler` skips calls none;
    /// a hook that fails ends the step.
    ///
    /// ```
    /// use tch::{Device, Kind, nn::VarStore};
    /// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, clip_grad_norm_};
    ///
    /// let vs = VarStore::new(Device::Cpu);
    /// let weight = vs.root().zeros("weight", &[1]);
    /// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?;
    /// optimizer.register_step_pre_hook(|optimizer| {
    ///     clip_grad_norm_(&optimizer.parameters(), 0.5).map(drop)
    /// });
    /// (&weight * 3.0).sum(Kind::Float).backward();
    /// optimizer.step()?;
    /// assert!((weight.double_value(&[0]) + 0.5).abs() < 1e-6);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn register_step_pre_hook(
        &mut self,
        hook: impl FnMut(&mut dyn Optimizer) -> Result<()> + Send + 'static,
    ) {
        self.hooks[BEFORE].0.push(Box::new(hook));
    }

    /// Calls `hook` after each step: `optimizer.register_step_post_hook(hook)`. In a `ZeroRedundancyOptimizer`, only this
    /// rank's share of the parameters has changed by then.
    pub fn register_step_post_hook(
        &mut self,
        hook: impl FnMut(&mut dyn Optimizer) -> Result<()> + Send + 'static,
    ) {
        self.hooks[AFTER].0.push(Box::new(hook));
    }

    pub(super) fn run_hooks(&mut self, place: usize) -> Result<()> {
        // A hook gets the whole optimizer, which has no hooks meanwhile.
        let mut hooks = std::mem::take(&mut self.hooks[place]);
        let result = hooks.0.iter_mut().try_for_each(|hook| hook(self));
        self.hooks[place] = hooks;
        result
    }
}
