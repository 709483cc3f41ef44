//! A block whose parameters are whole only while it is used: `FSDPModule`.

use super::mixed_precision::{MixedPrecisionPolicy, cast};
use super::unit::{Unit, fitting};
use crate::{Error, Result, Tensors, profiler::record_function};
use crate::{distributed::fault::blame::may_be_anothers_fault, distributed::group::ProcessGroup};
use c10d_sys::{autograd::backward_from, tensor::grad_enabled};
use std::sync::{Arc, Weak};
use std::{collections::HashMap, time::Duration};
use tch::{Tensor, nn::ModuleT, no_grad};
use tch_parallel_base::tensors::{fill, list};

/// A block, or the whole model, that [`FullyShard`](super::FullyShard) has sharded. `FSDPModule`
///
/// A module with one input and one output works with tch's [`ModuleT`], any other with [`call`](Self::call), and the
/// whole model with [`forward`](Self::forward). All ranks must run the same blocks in the same order, also to evaluate.
pub struct FsdpModule<M> {
    pub(super) module: M,
    pub(super) unit: Arc<Unit>,
    /// Buffers and ignored parameters, which every rank has whole. Only in the root.
    pub(super) others: Vec<(String, Tensor)>,
    pub(super) policy: MixedPrecisionPolicy,
    pub(super) group: ProcessGroup,
}

impl<M> FsdpModule<M> {
    /// Calls `f` with the module and the inputs, while the module's parameters are whole.
    ///
    /// Pass all tensors that require gradients as inputs. If `f` captures them all instead, the result is the same, but
    /// the block's parameters are not freed, nor its gradients reduced, until the end of the backward pass.
    ///
    /// # Errors
    /// [`Error::Collective`] if the parameters of this block, or of one inside it, could not be gathered.
    pub fn forward<I: Tensors, O: Tensors>(
        &self,
        mut inputs: I,
        f: impl FnOnce(&M, I) -> O,
    ) -> Result<O> {
        let policy = &self.policy;
        let outputs = record_function("FSDP::forward", || -> Result<O> {
            cast(&mut inputs, policy.param_dtype.filter(|_| policy.cast_forward_inputs))?;
            let needs_gradient = |tensor: &Tensor| grad_enabled() && tensor.requires_grad();
            let mut tensors = list(&inputs);
            tensors.retain(needs_gradient);
            self.unit.pre_forward(&mut tensors)?;
            let mut hooked = tensors.into_iter();
            inputs.visit(&mut |tensor| {
                if needs_gradient(tensor)
                    && let Some(hooked) = hooked.next()
                {
                    *tensor = hooked;
                }
            });
            let outputs = self.unit.schedule.run(|| f(&self.module, inputs))?;
            let mut hooked = list(&outputs);
            self.unit.post_forward(&mut hooked)?;
            let mut outputs = fill(&outputs, hooked);
            cast(&mut outputs, policy.output_dtype)?;
            Ok(outputs)
        })?;
        outputs.inspect_err(|_| drop(self.unit.schedule.recover()))
    }

    /// [`forward`](Self::forward) within an enclosing block's forward pass, which returns the error. `module(inputs)`
    ///
    /// # Panics
    /// If it fails and no enclosing block is running.
    pub fn call<I: Tensors, O: Tensors>(&self, inputs: I, f: impl FnOnce(&M, I) -> O) -> O {
        self.forward(inputs, f).unwrap_or_else(|error| self.unit.schedule.fail(error))
    }

    /// `loss.backward()`: afterwards each rank has its shards of the gradients, averaged over the ranks.
    ///
    /// On an error, all blocks' parameters are freed, and unreduced gradients are dropped. After an [`Error::Tensor`]
    /// on all ranks, the model can be used again. If only this rank has failed, it must exit: the others wait for it.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank died or did not arrive in time; [`Error::Tensor`] if only this rank failed.
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        backward_from(loss).map_err(|error| match self.unit.schedule.recover() {
            Some(kept) => kept,
            None if may_be_anothers_fault(&error) => self.group.failed("backward", &error),
            None => Error::engine("backward")(error),
        })
    }

    /// Whether backward passes reduce the gradients of this block and of those inside it. If not,
    /// whole gradients accumulate, which saves the reductions but takes the memory of all gradients.
    /// `model.set_requires_gradient_sync(sync)`
    pub fn set_requires_gradient_sync(&self, sync: bool) {
        self.units().iter().for_each(|unit| unit.set(|it| it.syncs_gradients = sync));
    }

    /// Starts to gather these blocks when this block's forward pass begins, before they are needed.
    /// `module.set_modules_to_forward_prefetch(modules)`
    pub fn set_modules_to_forward_prefetch<N>(&self, modules: &[&FsdpModule<N>]) {
        self.unit.set(|it| it.forward_prefetches = units_of(modules));
    }

    /// Starts to gather these blocks when this block's backward pass begins, instead of the one whose
    /// backward pass comes next. `module.set_modules_to_backward_prefetch(modules)`
    pub fn set_modules_to_backward_prefetch<N>(&self, modules: &[&FsdpModule<N>]) {
        self.unit.set(|it| it.backward_prefetches = units_of(modules));
    }

    /// Whether to free the parameters of this block and of those inside it after their forward pass, and
    /// to gather them again for the backward pass. `model.set_reshard_after_forward(reshard)`
    pub fn set_reshard_after_forward(&self, reshard: bool) {
        let group = reshard.then_some(&self.group);
        self.units().iter().for_each(|unit| unit.set(|it| it.post_forward_group = group.cloned()));
    }

    /// Whether this block and those inside are freed after a backward pass. `model.set_reshard_after_backward(reshard)`
    pub fn set_reshard_after_backward(&self, reshard: bool) {
        self.units().iter().for_each(|unit| unit.set(|it| it.reshard_after_backward = reshard));
    }

    /// Gathers this block's own parameters, not those of the blocks inside it. A collective. `model.unshard()`
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank has died or did not arrive within the timeout.
    pub fn unshard(&self) -> Result<()> {
        self.unit.unshard()
    }

    /// Frees what this rank has of this block's whole parameters. `model.reshard()`
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch reports an error.
    pub fn reshard(&self) -> Result<()> {
        self.unit.reshard()
    }

    /// The mean time per step that this rank spends in collectives; with NCCL, only the time to start them.
    pub fn waiting_time(&self) -> Duration {
        self.unit.schedule.waiting_time()
    }

    /// The whole parameters of this block and of those inside it; for the root, also the buffers and ignored parameters.
    /// A collective: each rank gets all of them, so they must fit into its memory. `get_model_state_dict` with
    /// `full_state_dict=True`
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank has died or did not arrive within the timeout.
    pub fn full_state_dict(&self) -> Result<HashMap<String, Tensor>> {
        let shards = self.units().into_iter().flat_map(|unit| unit.shards());
        let wholes = shards.map(|(name, size, part)| Ok((name, self.whole(&size, &part)?)));
        let others = self.others.iter().map(|(name, it)| Ok((name.clone(), it.f_detach_copy()?)));
        wholes.chain(others).collect()
    }

    /// Sets what [`full_state_dict`](Self::full_state_dict) returns. Each rank takes its rows; this is not a collective.
    /// Other entries are ignored. `set_model_state_dict` with `full_state_dict=True`
    ///
    /// # Errors
    /// [`Error::Argument`] if an entry is missing or has another shape. Others may already have been set.
    pub fn load_full_state_dict(&self, state_dict: &HashMap<String, Tensor>) -> Result<()> {
        self.units().iter().try_for_each(|unit| unit.load(state_dict))?;
        no_grad(|| {
            self.others.iter().try_for_each(|(name, other)| {
                let given = fitting(state_dict, name, &other.size())?;
                Ok(other.shallow_clone().f_copy_(given).map(drop)?)
            })
        })
    }

    fn whole(&self, size: &[i64], part: &Tensor) -> Result<Tensor> {
        let length = self.group.world_size() as i64 * part.numel() as i64;
        let mut parts = Tensor::f_empty([length], (part.kind(), part.device()))?;
        no_grad(|| self.group.all_gather_into_tensor(&mut parts, part))?;
        Ok(parts.f_narrow(0, 0, size.iter().product())?.f_view(size)?)
    }

    /// The module itself. Its parameters can only be read while they are whole.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The units of this block and of those inside it.
    fn units(&self) -> Vec<Arc<Unit>> {
        let mut units = self.unit.schedule.units();
        let own = &self.unit.name;
        let is_inside =
            |name: &str| name.strip_prefix(own.as_str()).is_some_and(|rest| rest.starts_with('.'));
        units.retain(|unit| own.is_empty() || unit.name == *own || is_inside(&unit.name));
        units
    }
}

fn units_of<M>(modules: &[&FsdpModule<M>]) -> Vec<Weak<Unit>> {
    modules.iter().map(|module| Arc::downgrade(&module.unit)).collect()
}

impl<M: ModuleT> FsdpModule<M> {
    /// [`ModuleT::forward_t`] that returns errors; the name follows tch's fallible functions.
    ///
    /// # Errors
    /// Those of [`forward`](Self::forward).
    pub fn f_forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.forward(xs.shallow_clone(), |module, xs| module.forward_t(&xs, train))
    }
}

impl<M: ModuleT> ModuleT for FsdpModule<M> {
    /// # Panics
    /// Like [`call`](Self::call).
    fn forward_t(&self, xs: &Tensor, train: bool) -> Tensor {
        self.call(xs.shallow_clone(), |module, xs| module.forward_t(&xs, train))
    }
}

debug_parts!(FsdpModule<M>, self, module: std::any::type_name::<M>(), block: self.unit.name);
