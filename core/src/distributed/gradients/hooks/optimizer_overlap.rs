//! An optimizer's step for each bucket: PyTorch's `optimizer_overlap_hooks`.

use super::{CommHook, Finish, GradBucket};
use crate::{Error, Result, distributed::ProcessGroup};
use std::sync::{Arc, Mutex};
use tch_parallel_base::lock;
use tch_parallel_optim::{ParamGroupOptimizer, UpdateRule};

/// Makes the optimizer's step for the parameters of each bucket as soon as `hook` has exchanged it, while later buckets
/// are still on their way. `_hook_then_optimizer(hook, _OptimizerHookState(optimizer))`, `ddp._register_fused_optim`
///
/// The loop makes no step of its own. Parameters that the optimizer does not have are left alone, and an unused one has a
/// gradient of zeros, as in PyTorch. The optimizer's own hooks run for each bucket. Gradients can be neither clipped nor
/// scaled. The step comes at the end of the backward pass, which waits for one bucket after the other; PyTorch makes it on
/// threads of its futures. Drop guards of the mutex before it.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tch::{Kind, Tensor, nn::{self, ModuleT}};
/// use tch_parallel::distributed::hooks::{AllReduce, HookThenOptimizer};
/// use tch_parallel::distributed::{DdpOptions, DistributedDataParallel, ProcessGroup};
/// use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
///
/// let group = ProcessGroup::from_env()?;
/// let vs = nn::VarStore::new(group.device());
/// let module = nn::linear(vs.root(), 4, 1, Default::default());
/// let sgd = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() })?;
/// let optimizer = Arc::new(Mutex::new(sgd)); // also for schedules and checkpoints
/// let hook = HookThenOptimizer { hook: AllReduce, optimizer: Arc::clone(&optimizer) };
/// let options = DdpOptions { comm_hook: Some(Box::new(hook)), ..Default::default() };
/// let model = DistributedDataParallel::with_options(module, &vs, &group, options)?;
///
/// let bias = vs.variables()["bias"].copy();
/// optimizer.lock().unwrap().zero_grad()?;
/// let images = Tensor::ones([8, 4], (Kind::Float, group.device()));
/// model.backward(&model.forward_t(&images, true).mean(Kind::Float))?;
/// assert_eq!(vs.variables()["bias"], bias - 0.5); // the gradient is 1
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct HookThenOptimizer<H, R> {
    /// What exchanges the gradients.
    pub hook: H,
    /// What makes the steps.
    pub optimizer: Arc<Mutex<ParamGroupOptimizer<R>>>,
}

impl<H: CommHook, R: UpdateRule + Send> CommHook for HookThenOptimizer<H, R> {
    fn name(&self) -> String {
        let optimizer = lock(&self.optimizer);
        let groups: Vec<_> = optimizer.param_groups().iter().map(|group| &group.options).collect();
        format!("hook_then_optimizer({}, {groups:?})", self.hook.name())
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let mut buffer = bucket.buffer()?;
        let (parameters, gradients) = (bucket.parameters()?, bucket.gradients()?);
        let finish = self.hook.start(group, bucket)?;
        let optimizer = Arc::clone(&self.optimizer);
        Ok(Box::new(move || {
            // The gradients are views into the buffer, and the hook's result may be another tensor.
            buffer.f_copy_(&finish()?)?;
            let mut optimizer = optimizer.try_lock().map_err(|error| {
                let expected = "available: drop its guard before the backward pass";
                Error::argument("the optimizer of hook_then_optimizer", error, expected)
            })?;
            optimizer.step_params(&parameters.into_iter().zip(gradients).collect::<Vec<_>>())?;
            Ok(buffer)
        }))
    }
}
