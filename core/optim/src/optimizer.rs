//! What all optimizers have in common: PyTorch's base class `Optimizer`.

use super::{param_group::GroupOptions, param_group::ParamGroup, update_rule::UpdateRule};
use crate::{Error, Result, check::check};
use c10d_sys::tensor::clear_grad;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeSet, fmt::Debug};
use tch::Tensor;

/// Updates parameters by their gradients: `torch.optim.Optimizer`.
///
/// Schedules, `GradScaler` and checkpoints work with any. A wrapper need not forward what follows from the groups.
pub trait Optimizer: Debug {
    /// Makes one step. Parameters without a gradient are unchanged.
    ///
    /// # Errors
    /// [`Error::Tensor`] if an operation fails; some parameters may already have changed.
    fn step(&mut self) -> Result<()>;

    /// Clears all gradients, so that the next backward pass starts from nothing.
    ///
    /// They are dropped rather than filled with zeros (PyTorch's `set_to_none=True`): a parameter
    /// that gets no gradient is then left alone, and gradients can be views into buckets.
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch refuses.
    fn zero_grad(&mut self) -> Result<()> {
        let cleared = self.parameters().iter_mut().try_for_each(clear_grad);
        cleared.map_err(Error::engine("zero_grad"))
    }

    /// The parameter groups, at least one. `optimizer.param_groups`
    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>>;

    /// The parameter groups, to change what schedules change.
    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>>;

    /// The parameters of all groups, in PyTorch's order: this is where to find the gradients.
    fn parameters(&self) -> Vec<Tensor> {
        self.param_groups().into_iter().flat_map(ParamGroup::tensors).collect()
    }

    /// The learning rate of the first group. `optimizer.param_groups[0]["lr"]`
    fn lr(&self) -> f64 {
        self.param_groups().first().map_or(f64::NAN, |group| group.options.lr())
    }

    /// Sets the learning rate of later steps, for all groups.
    fn set_lr(&mut self, lr: f64) {
        self.param_groups_mut().into_iter().for_each(|group| group.options.set_lr(lr));
    }

    /// Gathers on rank `to` the state that is on other ranks, so that [`state_dict`](Self::state_dict) is complete
    /// there. A collective. It does nothing for an optimizer that has its whole state on every rank.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank could not be reached.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        let _ = to;
        Ok(())
    }

    /// What the next step depends on besides parameters and gradients.
    ///
    /// The tensors are the optimizer's own, as in PyTorch: saving takes no extra memory; the next step changes them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the state on this rank is incomplete, or if JSON cannot represent an option.
    fn state_dict(&self) -> Result<OptimizerState>;

    /// Copies a state that [`state_dict`](Self::state_dict) returned, including the learning rate
    /// and all other options, as in PyTorch. To use other options, set them afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] for the state of another kind of optimizer, an unknown parameter name, a
    /// wrong shape, or an incomplete parameter. The optimizer is then unchanged.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()>;

    /// The size of the state in bytes, for memory reports.
    fn state_bytes(&self) -> usize;
}

/// For an optimizer that is chosen at run time.
impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }

    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>> {
        (**self).param_groups()
    }

    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>> {
        (**self).param_groups_mut()
    }

    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        (**self).consolidate_state_dict(to)
    }

    fn state_dict(&self) -> Result<OptimizerState> {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        (**self).load_state_dict(state)
    }

    fn state_bytes(&self) -> usize {
        (**self).state_bytes()
    }
}

/// What [`Optimizer::state_dict`] returns.
#[derive(Debug, PartialEq)]
pub struct OptimizerState {
    /// PyTorch's name of the optimizer (`SGD`); no other kind loads it.
    pub optimizer: String,
    /// The parameter groups, with their current options.
    pub param_groups: Vec<ParamGroupState>,
    /// The state of each parameter that has made a step, named `PARAMETER.ENTRY`: PyTorch's
    /// `state`, with its names (`fc.weight.momentum_buffer`).
    pub tensors: Vec<(String, Tensor)>,
}

/// A parameter group in an [`OptimizerState`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParamGroupState {
    /// The names of the parameters.
    pub param_names: Vec<String>,
    /// [`ParamGroup::initial_lr`]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_lr: Option<f64>,
    /// The options, with the current learning rate.
    pub options: Value,
}

impl OptimizerState {
    /// The options of each group, if the state belongs to an optimizer with these groups.
    pub(super) fn options_for<R: UpdateRule>(&self, groups: &[ParamGroup<R>]) -> Result<Vec<R>> {
        let name = groups[0].options.name();
        let found = format_args!("that of {}", self.optimizer);
        let expected = format_args!("that of {name}, which is this optimizer");
        check(self.optimizer == name, "the optimizer state", found, expected)?;
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let count = |count| format!("that of {count} parameter group{}", plural(count));
        let found = count(self.param_groups.len());
        let expected = format!("{}, which this optimizer has", count(groups.len()));
        check(self.param_groups.len() == groups.len(), "the optimizer state", found, expected)?;
        let groups = self.param_groups.iter().zip(groups).enumerate();
        groups.map(|(number, (saved, own))| saved.options_for(number, own)).collect()
    }
}

impl ParamGroupState {
    pub(super) fn new<R: UpdateRule>(group: &ParamGroup<R>) -> Result<Self> {
        let refused = |found: &dyn std::fmt::Display| {
            let what = format!("the options of {}", group.options.name());
            let expected = "made of finite numbers, because JSON cannot represent others";
            Error::argument(what, found, expected)
        };
        let options = serde_json::to_value(&group.options).map_err(|error| refused(&error))?;
        // Infinity and NaN would become null, which cannot be loaded again.
        if options.as_object().is_some_and(|options| options.values().any(Value::is_null)) {
            return Err(refused(&options));
        }
        let param_names = group.names().into_iter().map(str::to_owned).collect();
        Ok(ParamGroupState { param_names, initial_lr: group.initial_lr, options })
    }

    /// The options, if the state belongs to this group.
    fn options_for<R: UpdateRule>(&self, number: usize, group: &ParamGroup<R>) -> Result<R> {
        let saved: BTreeSet<_> = self.param_names.iter().map(String::as_str).collect();
        let own: BTreeSet<_> = group.names().into_iter().collect();
        let what = || format!("parameter group {number} of the optimizer state");
        if let Some(name) = saved.difference(&own).next() {
            let found = format!("one with {name}");
            return Err(Error::argument(what(), found, "one without, as this optimizer's is"));
        }
        if let Some(name) = own.difference(&saved).next() {
            let found = format!("one without {name}");
            return Err(Error::argument(what(), found, "one with it, as this optimizer's is"));
        }
        R::deserialize(&self.options).map_err(|error| {
            let what = format!("the options in the state of {}", group.options.name());
            let found = format!("{} ({error})", self.options);
            Error::argument(what, found, "what `state_dict` returned")
        })
    }
}
