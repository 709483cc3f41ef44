//! An optimizer's step for each bucket: PyTorch's `optimizer_overlap_hooks`.

use super::{CommHook, Finish, GradBucket, gradients_in};
use crate::{Error, Result, check, distributed::ProcessGroup};
use std::{fmt::Display, sync::Arc, sync::Mutex};
use tch_parallel_optim::{ParamGroupOptimizer, UpdateRule};

/// Makes the optimizer's step for the parameters of each bucket as soon as `hook` has exchanged it, while later buckets
/// are still on their way. `_hook_then_optimizer(hook, _OptimizerHookState(optimizer))`, `ddp._register_fused_optim`
///
/// The loop makes no step of its own. Gradients are not cleared: keep `zero_grad`. Parameters that the optimizer lacks
/// are left alone, and an unused one has a gradient of zeros, as in PyTorch. `params_and_buffers_to_ignore` are in no
/// bucket and need a step of their own. The optimizer's own hooks run for each bucket. Gradients must be dense, and
/// cannot be clipped or scaled. Steps come at the end of the backward pass, which waits for the buckets in order; in
/// PyTorch, its futures' threads make them. Drop the mutex's guard before `backward`. If `backward` fails, some
/// parameters may have made their step and others not: load a checkpoint. Not together with `delay_all_reduce_named_params`.
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
/// let hook = HookThenOptimizer::new(AllReduce, Arc::clone(&optimizer))?;
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
    name: String,
    hook: H,
    optimizer: Arc<Mutex<ParamGroupOptimizer<R>>>,
}

impl<H: CommHook, R: UpdateRule> HookThenOptimizer<H, R> {
    /// `hook` exchanges the gradients, and `optimizer` makes the steps. When the model is wrapped, ranks compare the
    /// current options of the optimizer's parameter groups, and how many parameters each has.
    ///
    /// # Errors
    /// [`Error::Argument`] while the optimizer is locked.
    pub fn new(hook: H, optimizer: Arc<Mutex<ParamGroupOptimizer<R>>>) -> Result<Self> {
        let own = optimizer.try_lock().map_err(in_use)?;
        let groups = own.param_groups().iter();
        let groups: Vec<_> = groups.map(|it| (it.names().len(), &it.options)).collect();
        let name = format!("hook_then_optimizer({}, {groups:?})", hook.name());
        drop(own);
        Ok(HookThenOptimizer { name, hook, optimizer })
    }
}

impl<H: CommHook, R: UpdateRule + Send> CommHook for HookThenOptimizer<H, R> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        let (mut buffer, parameters) = (bucket.buffer()?, bucket.parameters()?);
        let finish = self.hook.start(group, bucket)?;
        let optimizer = Arc::clone(&self.optimizer);
        Ok(Box::new(move || {
            // The hook's result may have another layout.
            buffer.f_copy_(&finish()?)?;
            check(!buffer.is_sparse(), "a gradient of hook_then_optimizer", "sparse", "dense")?;
            let gradients = gradients_in(&buffer, &parameters)?;
            let pairs: Vec<_> = parameters.into_iter().zip(gradients).collect();
            optimizer.try_lock().map_err(in_use)?.step_params(&pairs)?;
            Ok(buffer)
        }))
    }
}

fn in_use(error: impl Display) -> Error {
    Error::argument("the optimizer of hook_then_optimizer", error, "free: drop its guard first")
}
