//! The model on several devices, with outputs left in place: PyTorch-Encoding's `DataParallelModel`.

use super::replicas::{ModuleGuard, Replicas, SplitOutputs};
use super::trace::Trace;
use crate::{Devices, Result, Tensors};
use tch::Tensor;
use tch::nn::{ModuleT, Path, VarStore};

/// [`DataParallel`](super::DataParallel) without its last step: every output stays on the device that computed it,
/// where a [`DataParallelCriterion`](super::DataParallelCriterion) continues. No device holds the outputs of all.
///
/// From PyTorch-Encoding's parallel.py, by Hang Zhang. There, a forward pass returns a list, which criteria cannot tell
/// from a gathered output. Here it has its own type, and each criterion accepts only its own kind.
///
/// ```compile_fail,E0308
/// # use tch::{Tensor, nn::{Linear, Path, VarStore}};
/// # use tch_parallel::{Devices, data_parallel::{DataParallel, DataParallelCriterion}};
/// # fn f(model: DataParallel<Linear>, images: Tensor, labels: Tensor) -> tch_parallel::Result<()> {
/// let criterion = DataParallelCriterion::new(|output: &Tensor, label: &Tensor| output.cross_entropy_for_logits(label));
/// let outputs = model.f_forward_t(&images, true)?;
/// let loss = criterion.forward(outputs, labels)?; // gathered: there is nothing left to do in parallel
/// # Ok(()) }
/// ```
pub struct DataParallelModel<M> {
    replicas: Replicas<M>,
}

impl<M: Send> DataParallelModel<M> {
    /// Builds the model in `vs`, and its replicas, like [`DataParallel::new`](super::DataParallel::new).
    pub fn new(build: impl Fn(&Path<'_>) -> M, vs: &VarStore, devices: &Devices) -> Result<Self> {
        Ok(DataParallelModel { replicas: Replicas::new(build, vs, devices)? })
    }

    /// Divides the inputs along their first dimension and calls `f` with the module on every device that gets a part.
    pub fn forward<I, O>(&self, inputs: I, f: impl Fn(&M, I) -> O + Sync) -> Result<SplitOutputs<O>>
    where
        I: Tensors + Send,
        O: Tensors + Send,
    {
        self.replicas.apply(&inputs, 0, f)
    }

    /// [`DataParallel::module`](super::DataParallel::module)
    pub fn module(&self) -> ModuleGuard<'_, M> {
        self.replicas.module()
    }

    /// The devices that share a batch.
    pub fn devices(&self) -> &Devices {
        &self.replicas.shared.devices
    }

    /// Lets `trace` record the steps to come.
    pub fn set_trace(&self, trace: &Trace) {
        self.replicas.shared.set_trace(trace);
    }
}

impl<M: ModuleT> DataParallelModel<M> {
    /// [`forward`](Self::forward) for a module with one input and one output.
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<SplitOutputs<Tensor>> {
        self.forward(xs.shallow_clone(), |module, xs| module.forward_t(&xs, train))
    }
}

debug_parts!(
    DataParallelModel<M>, self,
    module: std::any::type_name::<M>(),
    devices: self.replicas.shared.devices
);
