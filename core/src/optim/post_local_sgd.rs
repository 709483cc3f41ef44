//! An optimizer that also averages parameters over the ranks.

use super::{GroupOptions, Optimizer, OptimizerState, ParamGroup};
use crate::{Error, Result, distributed::PeriodicModelAverager};
use tch::Tensor;

/// The number of steps in the state. Without a dot, unlike every `PARAMETER.ENTRY`.
pub(super) const STEP: &str = "step";

/// Makes the steps of another optimizer, and averages the parameters over the ranks after those that
/// its averager chooses. `torch.distributed.optim.PostLocalSGDOptimizer`
///
/// torchft's `LocalSGD(…, sync_every=n)` is this with `PeriodicModelAverager::new(&group, n, n - 1)`, which
/// averages after every `n`-th step, counted from 1, if all ranks use the same parameters in every step.
///
/// A state without the averager's step, such as that of an optimizer that was not wrapped, can be
/// loaded too: the averager then begins at step 0, with its warm-up.
///
/// Do not use [`GradScaler`](crate::amp::GradScaler) after the warm-up: each rank then checks
/// gradients of its own, so one may skip a step, and with it the average that the others wait for.
///
/// ```
/// # use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// use tch_parallel::distributed::hooks::PostLocalSgd;
/// # use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::distributed::PeriodicModelAverager;
/// use tch_parallel::optim::{Optimizer, PostLocalSgdOptimizer, Sgd, SgdOptions};
///
/// # let group = ProcessGroup::from_env()?;
/// # let vs = nn::VarStore::new(group.device());
/// # let module = nn::linear(vs.root(), 4, 1, Default::default());
/// # let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// // 100 steps with averaged gradients; then every rank goes its own way for 4 steps at a time.
/// let hook = PostLocalSgd::without_post_local_gradient_allreduce(100);
/// let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
/// let averager = PeriodicModelAverager::new(&group, 4, 100)?;
/// let sgd = Sgd::new(&vs, SgdOptions::default())?;
/// let mut optimizer = PostLocalSgdOptimizer::new(sgd, averager);
/// # model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
/// optimizer.step()?;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct PostLocalSgdOptimizer<O> {
    optimizer: O,
    averager: PeriodicModelAverager,
}

impl<O: Optimizer> PostLocalSgdOptimizer<O> {
    /// Wraps `optimizer`.
    pub fn new(optimizer: O, averager: PeriodicModelAverager) -> Self {
        PostLocalSgdOptimizer { optimizer, averager }
    }

    /// The wrapped optimizer, to change its groups.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }
}

impl<O: Optimizer> Optimizer for PostLocalSgdOptimizer<O> {
    /// Makes a step, and averages the parameters if it is time. Then it is a collective.
    ///
    /// # Errors
    /// Those of the wrapped optimizer, which the other ranks learn about when this one ends, and
    /// those of [`PeriodicModelAverager::average_parameters`].
    fn step(&mut self) -> Result<()> {
        self.averager.group.or_report(self.optimizer.step())?;
        self.averager.average_parameters(&self.optimizer.parameters())
    }

    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>> {
        self.optimizer.param_groups()
    }

    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>> {
        self.optimizer.param_groups_mut()
    }

    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        self.optimizer.consolidate_state_dict(to)
    }

    fn state_dict(&self) -> Result<OptimizerState> {
        let mut state = self.optimizer.state_dict()?;
        state.tensors.push((entry(entries(&state)), Tensor::from(self.averager.step as i64)));
        Ok(state)
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let last = entries(state).saturating_sub(1);
        let step = saved_step(state, &entry(last))?;
        self.optimizer.load_state_dict(&filtered(state, |name| name != entry(last)))?;
        self.averager.step = step;
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        self.optimizer.state_bytes()
    }
}

/// The name of an averager's step in a state. An optimizer that is wrapped may be such a wrapper itself.
fn entry(number: usize) -> String {
    if number == 0 { STEP.into() } else { format!("{STEP}{}", number + 1) }
}

/// How many averagers a state has, the outermost one last.
fn entries(state: &OptimizerState) -> usize {
    (0..).take_while(|&it| state.tensors.iter().any(|(name, _)| *name == entry(it))).count()
}

/// How many steps there were before this state; 0 unless it says so.
pub(super) fn saved_step(state: &OptimizerState, name: &str) -> Result<u64> {
    let Some((_, step)) = state.tensors.iter().find(|it| it.0 == name) else { return Ok(0) };
    u64::try_from(i64::try_from(step)?)
        .map_err(|_| Error::argument("the averager's step", "negative", "the number of steps made"))
}

/// The state with only the tensors whose names are chosen.
pub(super) fn filtered(state: &OptimizerState, is_chosen: impl Fn(&str) -> bool) -> OptimizerState {
    let chosen = state.tensors.iter().filter(|(name, _)| is_chosen(name));
    OptimizerState {
        optimizer: state.optimizer.clone(),
        param_groups: state.param_groups.clone(),
        tensors: chosen.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distributed::ProcessGroup;
    use crate::optim::{Sgd, SgdOptions};
    use tch::{Device, nn::VarStore};

    #[test]
    fn the_averagers_step_goes_with_the_state_beside_a_parameter_of_any_name() {
        let vs = VarStore::new(Device::Cpu);
        let _ = vs.root().sub("averager").ones("step", &[2]);
        let group = ProcessGroup::from_env().unwrap();
        let averager = |step| {
            let mut averager = PeriodicModelAverager::new(&group, 4, 100).unwrap();
            averager.step = step;
            averager
        };
        let wrapped = |inner, outer| {
            let sgd: Box<dyn Optimizer> = Box::new(Sgd::new(&vs, SgdOptions::default()).unwrap());
            let inner = PostLocalSgdOptimizer::new(sgd, averager(inner));
            PostLocalSgdOptimizer::new(inner, averager(outer))
        };
        let mut after = wrapped(0, 0);
        after.load_state_dict(&wrapped(7, 9).state_dict().unwrap()).unwrap();
        assert_eq!((after.optimizer.averager.step, after.averager.step), (7, 9));
        // As in PyTorch, without a step it begins again.
        let unwrapped = after.optimizer_mut().optimizer_mut().state_dict().unwrap();
        after.load_state_dict(&unwrapped).unwrap();
        assert_eq!((after.optimizer.averager.step, after.averager.step), (0, 0));
    }
}
