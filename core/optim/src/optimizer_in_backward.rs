//! Steps within the backward pass: PyTorch's `_apply_optimizer_in_backward`.

use super::{Optimizer, ParamGroupOptimizer, UpdateRule};
use crate::{Error, Result, check::check};
use c10d_sys::backward_hooks::after_accumulation;
use c10d_sys::{autograd::GraphEnd, is_in_reducer, tensor::clear_grad, tensor::identity};
use std::{fmt::Display, sync::Arc, sync::Mutex};
use tch::Tensor;
use tch_parallel_base::lock;

/// Makes a parameter's step as soon as a backward pass has accumulated its gradient, and clears the gradient, so that
/// the gradients of a model never exist all at once. `_apply_optimizer_in_backward(SGD, parameters, {"lr": 0.5})`
///
/// Call neither `step` nor `zero_grad`. Each backward pass makes a step, so gradients cannot be accumulated
/// over several passes, clipped or scaled. The optimizer's own hooks run once per parameter; parameters of groups
/// added later make no steps. Drop the mutex's guard before `backward`. If `backward` fails, some parameters may have made
/// their step and others not: load a checkpoint. Convert and move parameters before: afterwards, no step is made. A
/// `CheckpointWrapper` that runs several times in a pass makes as many steps. `FullyShard`, `DataParallel` on several
/// devices and `DistributedDataParallel` refuse it; with the last, `HookThenOptimizer` exchanges gradients first.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tch::{Device, Kind, Tensor, nn::Module, nn::VarStore};
/// use tch_parallel::optim::{OptimizerInBackward, Sgd, SgdOptions, steps_in_backward};
///
/// let vs = VarStore::new(Device::Cpu);
/// let layer = tch::nn::linear(vs.root(), 4, 1, Default::default());
/// let sgd = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() })?;
/// let optimizer = Arc::new(Mutex::new(sgd)); // also for schedules and checkpoints
/// let _in_backward = OptimizerInBackward::new(optimizer)?;
/// assert!(steps_in_backward(&layer.ws));
///
/// let weight = layer.ws.copy();
/// let images = Tensor::ones([8, 4], (Kind::Float, Device::Cpu));
/// layer.forward(&images).mean(Kind::Float).f_backward()?;
/// assert_eq!(layer.ws, weight - 0.5); // the gradient was 1
/// assert!(!layer.ws.grad().defined());
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "once it is dropped, backward passes make no steps"]
pub struct OptimizerInBackward<R> {
    /// These keep the parameters' accumulators of gradients, which have the hooks.
    _accumulators: Vec<GraphEnd>,
    /// The hooks refer to it weakly: a graph may keep them for longer.
    _steps: Arc<Mutex<Steps<R>>>,
}

/// The parameters of all [`OptimizerInBackward`], by their identities.
static STEPPED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Whether an [`OptimizerInBackward`] makes the steps of this parameter, and so leaves no gradient for others.
pub fn steps_in_backward(parameter: &Tensor) -> bool {
    lock(&STEPPED).contains(&identity(parameter))
}

/// Locked while a step is made, because each device has a thread of its own in a backward pass.
#[derive(Debug)]
struct Steps<R> {
    parameters: Vec<Tensor>,
    optimizer: Arc<Mutex<ParamGroupOptimizer<R>>>,
}

impl<R: UpdateRule + Send> OptimizerInBackward<R> {
    /// From now on, backward passes make the steps of the optimizer's parameters.
    ///
    /// # Errors
    /// [`Error::Argument`] while the optimizer is locked and for a parameter in `DistributedDataParallel` or another
    /// `OptimizerInBackward`, and [`Error::Tensor`] for one that is frozen.
    pub fn new(optimizer: Arc<Mutex<ParamGroupOptimizer<R>>>) -> Result<Self> {
        const OPERATION: &str = "OptimizerInBackward::new";
        let parameters = optimizer.try_lock().map_err(in_use)?.parameters();
        let is_exchanged = parameters.iter().any(is_in_reducer);
        let found = "one of parameters in DistributedDataParallel, which exchanges gradients later";
        check(!is_exchanged, "the optimizer", found, "used through HookThenOptimizer")?;
        let found = "one of parameters that another OptimizerInBackward steps";
        let is_stepped = parameters.iter().any(steps_in_backward);
        check(
            !is_stepped,
            "the optimizer",
            found,
            "the only one that steps them: drop the other first",
        )?;
        let ends = parameters.iter().map(GraphEnd::of).collect::<Result<_, _>>();
        let accumulators = ends.map_err(Error::engine(OPERATION))?;
        let own = parameters.iter().map(Tensor::shallow_clone).collect();
        lock(&STEPPED).extend(parameters.iter().map(identity));
        let steps = Arc::new(Mutex::new(Steps { parameters: own, optimizer }));
        for (index, parameter) in parameters.iter().enumerate() {
            let steps = Arc::downgrade(&steps);
            let hook = move || steps.upgrade().map_or(Ok(()), |steps| lock(&steps).make(index));
            after_accumulation(parameter, hook).map_err(Error::engine(OPERATION))?;
        }
        Ok(OptimizerInBackward { _accumulators: accumulators, _steps: steps })
    }
}

impl<R: UpdateRule> Steps<R> {
    fn make(&mut self, index: usize) -> c10d_sys::Result<()> {
        let parameter = &mut self.parameters[index];
        let pair = [(parameter.shallow_clone(), parameter.grad())];
        let mut optimizer = self.optimizer.try_lock().map_err(|error| in_use(error).to_string())?;
        optimizer.step_params(&pair).map_err(|error| error.to_string())?;
        clear_grad(parameter)
    }
}

impl<R> Drop for Steps<R> {
    fn drop(&mut self) {
        let mut stepped = lock(&STEPPED);
        for parameter in &self.parameters {
            let own = identity(parameter);
            if let Some(place) = stepped.iter().position(|other| *other == own) {
                stepped.swap_remove(place);
            }
        }
    }
}

fn in_use(error: impl Display) -> Error {
    Error::argument("the optimizer in the backward pass", error, "free: drop its guard first")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sgd, SgdOptions};
    use tch::{Device, Kind, nn::VarStore};

    #[test]
    fn a_step_that_fails_is_an_error_of_the_backward_pass_and_without_hooks_none_is_made() {
        let mut vs = VarStore::new(Device::Cpu);
        let weight = vs.root().zeros("weight", &[1]);
        let sgd = Arc::new(Mutex::new(Sgd::new(&vs, SgdOptions::default()).unwrap()));
        let in_backward = OptimizerInBackward::new(sgd.clone()).unwrap();
        let again = Sgd::new(&vs, SgdOptions::default()).unwrap();
        let error = OptimizerInBackward::new(Arc::new(Mutex::new(again))).unwrap_err().to_string();
        assert!(error.contains("that another OptimizerInBackward steps"), "{error}");
        let loss = || weight.sum(Kind::Float);
        let guard = sgd.lock().unwrap();
        let error = loss().f_backward().unwrap_err().to_string();
        assert!(error.contains("the optimizer in the backward pass is"), "{error}");
        drop(guard);
        // A graph keeps the hooks.
        let last = loss();
        drop(in_backward);
        last.backward();
        assert_eq!([&weight, &weight.grad()].map(|it| it.double_value(&[0])), [0.0, 2.0]);
        vs.freeze();
        assert!(OptimizerInBackward::new(sgd).is_err());
    }
}
