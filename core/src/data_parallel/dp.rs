//! The model on several devices, its outputs on one: `torch.nn.DataParallel`.

use super::backward::{Parts, SEVERAL};
use super::gather::gather_traced;
use super::replicas::{ModuleGuard, Replicas, SplitInput, SplitOutputs};
use super::trace::{Step, Trace};
use crate::{Devices, Error, LogicalDevice, Result, Tensors};
use c10d_sys::autograd::{backward_from, check_accumulates, hook_gradients};
use tch::nn::{ModuleT, Path, VarStore};
use tch::{Tensor, no_grad};
use tch_parallel_base::tensors::{fill, list};

/// PyTorch's keyword arguments of `DataParallel`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataParallelOptions {
    /// The device on which outputs are gathered; needs no replica. `None`: the first, which then uses the most memory.
    pub output_device: Option<LogicalDevice>,
    /// The dimension along which batches are divided and outputs gathered: 0, or 1 for batches `[time, batch, ..]`.
    pub dim: i64,
}

/// `torch.nn.DataParallel`: one process trains a model on several devices, each of which gets a part of the batch.
///
/// Every forward pass divides the inputs ([`scatter`](fn@super::scatter)), brings the replicas up to date
/// (`replicate`), runs them in parallel ([`parallel_apply`](super::Workers::parallel_apply)) and concatenates their
/// outputs ([`gather`](fn@super::gather)). The backward pass goes the same way in reverse and sums the replicas'
/// gradients into the original, whose variables are in the caller's variable store, where the optimizer updates them.
/// Gradients are summed, not averaged, because the loss of the whole batch is already divided by its size.
///
/// Whatever a forward pass writes (running statistics), only the original's is kept.
///
/// With one device, the module is simply called. On logical devices, the replicas draw dropout masks from one shared
/// generator in an order that changes from run to run; each GPU has its own generator. On several devices there is no
/// `autograd.grad` or `run_backward` through the module, nor `create_graph`.
///
/// ```
/// # use tch::{Device, Kind, Tensor, nn::{self, ModuleT, VarStore}};
/// # use tch_parallel::{Devices, data_parallel::DataParallel};
/// # let images = Tensor::rand([8, 4], (Kind::Float, Device::Cpu));
/// # let labels = Tensor::zeros([8], (Kind::Int64, Device::Cpu));
/// let devices: Devices = "2xcpu".parse()?;
/// let vs = VarStore::new(devices.first().into());
/// let build = |p: &nn::Path| nn::linear(p / "fc", 4, 3, Default::default());
/// let model = DataParallel::new(build, &vs, &devices)?;
/// let outputs = model.forward_t(&images, true); // [8, 4] in, four rows on each device
/// assert_eq!(outputs.size(), [8, 3]);
/// model.backward(&outputs.cross_entropy_for_logits(&labels))?;
/// assert_eq!(vs.variables()["fc.weight"].grad().size(), [3, 4]);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub struct DataParallel<M> {
    replicas: Replicas<M>,
    output_device: LogicalDevice,
    dim: i64,
}

impl<M: Send> DataParallel<M> {
    /// Builds the model in `vs`, which must be on the first device, and a replica on each further device.
    ///
    /// The initial weights are the same as without DataParallel, whatever the number of devices.
    ///
    /// # Errors
    /// [`Error::Argument`] if `vs` is on another device or already has the model's variables.
    pub fn new(build: impl Fn(&Path<'_>) -> M, vs: &VarStore, devices: &Devices) -> Result<Self> {
        Self::with_options(build, vs, devices, DataParallelOptions::default())
    }

    /// The same, with outputs on another device, or batches along another dimension.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`Error::Argument`] for an output device that does not exist.
    pub fn with_options(
        build: impl Fn(&Path<'_>) -> M,
        vs: &VarStore,
        devices: &Devices,
        options: DataParallelOptions,
    ) -> Result<Self> {
        let output_device = options.output_device.unwrap_or(devices.first()).check()?;
        let replicas = Replicas::new(build, vs, devices)?;
        Ok(DataParallel { replicas, output_device, dim: options.dim })
    }

    /// Calls `f` with the module on every device that gets a part of the inputs, and gathers the
    /// results. Without inputs, `()`, it runs on the first device only.
    ///
    /// ```
    /// # use tch::{Tensor, kind::FLOAT_CPU, nn::{self, Module, VarStore}};
    /// # use tch_parallel::{Devices, Shared, data_parallel::DataParallel};
    /// # let devices: Devices = "2xcpu".parse()?;
    /// # let vs = VarStore::new(devices.first().into());
    /// # let model = DataParallel::new(|p| nn::linear(p, 4, 3, Default::default()), &vs, &devices)?;
    /// # let [a, b] = [(); 2].map(|()| Tensor::ones([8, 4], FLOAT_CPU));
    /// let (left, right) = model.forward((a, b, Shared(0.5)), |tower, (a, b, Shared(scale))| {
    ///     (tower.forward(&a) * scale, tower.forward(&b))
    /// })?;
    /// assert_eq!((left.size(), right.size()), (vec![8, 3], vec![8, 3]));
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for inputs that cannot be split, [`Error::Replica`] if `f` panics.
    pub fn forward<I, O>(&self, inputs: I, f: impl Fn(&M, I) -> O + Sync) -> Result<O>
    where
        I: Tensors + Send,
        O: Tensors + Send,
    {
        let shared = &self.replicas.shared;
        let SplitOutputs { parts, inputs, .. } = self.replicas.apply(&inputs, self.dim, f)?;
        let trace = shared.trace();
        if shared.devices.len() == 1 {
            // Nothing was split, so the graph is complete.
            if self.output_device != shared.devices.first() {
                return gather_traced(&parts, self.output_device, self.dim, &trace);
            }
            let none = || Error::argument("inputs", "without rows", "at least one row");
            return parts.into_iter().next().ok_or_else(none);
        }
        let gathered = no_grad(|| gather_traced(&parts, self.output_device, self.dim, &trace))?;
        self.join_graphs(&gathered, &parts, inputs)
    }

    /// Makes a backward pass that reaches the gathered tensors continue in the replicas.
    fn join_graphs<O: Tensors>(
        &self,
        gathered: &O,
        outputs: &[O],
        inputs: Vec<SplitInput>,
    ) -> Result<O> {
        let mut tensors = list(gathered);
        let outputs: Vec<_> = outputs.iter().map(list).collect();
        let (mut wanted, mut parts) = (Vec::new(), Vec::new());
        for index in 0..tensors.len() {
            let whole = Parts::of(outputs.iter().map(|output| &output[index]), self.dim)?;
            if whole.require_grad() {
                wanted.push(index);
                parts.push(whole);
            }
        }
        if wanted.is_empty() {
            return Ok(fill(gathered, tensors));
        }
        let mut leaves: Vec<_> =
            wanted.iter().map(|&index| tensors[index].set_requires_grad(true)).collect();
        let wholes: Vec<_> = inputs.iter().map(|input| input.whole.shallow_clone()).collect();
        let shared = self.replicas.shared.clone();
        hook_gradients(&mut leaves, &wholes, move |gradients, retain_graph| {
            check_accumulates(SEVERAL)?;
            let passed = shared.backward_gathered(&parts, gradients, &inputs, retain_graph);
            passed.map_err(|error| error.to_string().into())
        })
        .map_err(Error::engine("gather"))?;
        wanted.into_iter().zip(leaves).for_each(|(index, leaf)| tensors[index] = leaf);
        Ok(fill(gathered, tensors))
    }

    /// `loss.backward()`: afterwards the variables hold the gradients of the whole batch, as if there were one device.
    ///
    /// Unlike a plain `loss.backward()`, it returns errors, and books the gradient's memory to a logical output device.
    ///
    /// # Errors
    /// [`Error::Tensor`] if the pass fails; if a replica failed, the message names it.
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let _on = self.output_device.guard()?;
        let shared = &self.replicas.shared;
        // With one device there is one pass. Otherwise the pass of the loss ends where the replicas' begin.
        let step = if shared.devices.len() == 1 { Step::Backward } else { Step::Loss };
        shared.begin_loss(step, self.output_device);
        let passed = backward_from(loss).map_err(Error::engine("backward"));
        shared.end_loss();
        passed
    }

    /// The original module, for evaluation on one device or for other methods than its forward pass. `model.module`
    ///
    /// Drop the guard before the next forward or backward pass.
    ///
    /// # Panics
    /// If called within a forward pass of this model, or while this thread already has a guard.
    pub fn module(&self) -> ModuleGuard<'_, M> {
        self.replicas.module()
    }

    /// The devices that share a batch. `device_ids`
    pub fn devices(&self) -> &Devices {
        &self.replicas.shared.devices
    }

    /// Where outputs are put together.
    pub fn output_device(&self) -> LogicalDevice {
        self.output_device
    }

    /// Lets `trace` record the steps to come.
    pub fn set_trace(&self, trace: &Trace) {
        self.replicas.shared.set_trace(trace);
    }
}

impl<M: ModuleT> DataParallel<M> {
    /// [`ModuleT::forward_t`] that returns errors, named as tch names its fallible functions.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.forward(xs.shallow_clone(), |module, xs| module.forward_t(&xs, train))
    }
}

impl<M: ModuleT> ModuleT for DataParallel<M> {
    /// # Panics
    /// Where [`f_forward_t`](Self::f_forward_t) returns an error.
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.f_forward_t(xs, train).unwrap_or_else(|error| panic!("{error}"))
    }
}

debug_parts!(
    DataParallel<M>, self,
    module: std::any::type_name::<M>(),
    devices: self.replicas.shared.devices,
    output_device: self.output_device
);
