//! Parameters that share options: an entry of `optimizer.param_groups`.

use super::parameter_state::ParameterState;
use crate::{Result, check::check};
use std::{collections::BTreeMap, fmt::Debug};
use tch::{Tensor, nn::VarStore};
use tch_parallel_base::{lock, parameters::named_parameters};

/// The options that every optimizer has, whatever else it has: schedules set the rate and the momentum.
pub trait GroupOptions: Debug {
    /// The learning rate. `group["lr"]`
    fn lr(&self) -> f64;

    /// Sets the learning rate of later steps.
    fn set_lr(&mut self, lr: f64);

    /// The momentum, as PyTorch's schedules understand it: `group["momentum"]`, or the first of
    /// `group["betas"]`. `None` for an optimizer that has neither.
    fn momentum(&self) -> Option<f64> {
        None
    }

    /// Sets the momentum of later steps; does nothing for an optimizer without momentum.
    fn set_momentum(&mut self, momentum: f64) {
        let _ = momentum;
    }

    /// Whether to maximize the objective instead of minimizing it. `group["maximize"]`
    fn maximize(&self) -> bool {
        false
    }

    /// Whether [`UpdateRule::step`](super::UpdateRule::step) gets all parameters of one kind on one device at once, as
    /// lists whose operations are PyTorch's `_foreach_*`, instead of one after the other. `group["foreach"]`
    ///
    /// With `None`, it gets lists if all of a group's parameters with a gradient are on GPUs. Those of a kind of which
    /// one has a sparse gradient never come as a list. Unless implemented, it gets one parameter after the other.
    fn foreach(&self) -> Option<bool> {
        Some(false)
    }
}

/// Parameters and the options with which an optimizer updates them: an entry of `optimizer.param_groups`.
///
/// ```
/// use tch::{Device, nn::VarStore};
/// use tch_parallel::nn::named_parameters;
/// use tch_parallel::optim::{Adam, AdamOptions, ParamGroup};
///
/// let vs = VarStore::new(Device::Cpu);
/// let _ = tch::nn::linear(vs.root() / "fc", 8, 3, Default::default());
///
/// // Weight decay only for matrices.
/// let (decay, no_decay) = named_parameters(&vs).into_iter().partition(|(_, p)| p.dim() >= 2);
/// let options = AdamOptions { lr: 6e-4, weight_decay: 0.1, ..AdamOptions::adamw() };
/// let mut optimizer = Adam::from_param_groups([
///     ParamGroup::new(decay, options),
///     ParamGroup::new(no_decay, AdamOptions { weight_decay: 0.0, ..options }),
/// ])?;
/// assert_eq!(optimizer.param_groups()[1].names(), ["fc.bias"]);
///
/// // The options can change between two steps, like Python's `param_groups[1]["lr"] = 1e-4`.
/// optimizer.param_groups_mut()[1].options.lr = 1e-4;
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct ParamGroup<O: ?Sized> {
    pub(super) parameters: Vec<Parameter>,
    /// The learning rate from which every schedule starts: that with which the group was created, or the one that
    /// OneCycleLR or CyclicLR has put in its place. `None` until the first one starts. `group["initial_lr"]`
    pub initial_lr: Option<f64>,
    /// The options of all parameters of the group.
    pub options: O,
}

#[derive(Debug)]
pub(super) struct Parameter {
    pub name: String,
    pub tensor: Tensor,
    pub state: ParameterState,
}

impl<O> ParamGroup<O> {
    /// A group of these parameters, which may be none. The optimizer's state uses their names.
    pub fn new(parameters: Vec<(String, Tensor)>, options: O) -> Self {
        let parameter = |(name, tensor)| Parameter { name, tensor, state: Default::default() };
        let parameters = parameters.into_iter().map(parameter).collect();
        ParamGroup { parameters, initial_lr: None, options }
    }
}

impl<O: ?Sized> ParamGroup<O> {
    /// The names of the parameters: `group["param_names"]`.
    pub fn names(&self) -> Vec<&str> {
        self.parameters.iter().map(|parameter| parameter.name.as_str()).collect()
    }

    /// The parameters: `group["params"]`.
    pub fn tensors(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|parameter| parameter.tensor.shallow_clone()).collect()
    }
}

/// The trainable variables of a store by the number of their group
/// ([`Path::set_group`](tch::nn::Path::set_group)), which is 0 unless set. There must be one.
pub(super) fn groups_of_store(vs: &VarStore) -> Result<BTreeMap<usize, Vec<(String, Tensor)>>> {
    let numbers: Vec<_> =
        lock(&vs.variables_).trainable_variables.iter().map(|variable| variable.group).collect();
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for (number, parameter) in numbers.into_iter().zip(named_parameters(vs)) {
        groups.entry(number).or_default().push(parameter);
    }
    let expected = "that of a model; build the model before its optimizer";
    check(!groups.is_empty(), "vs", "a variable store without a trainable variable", expected)?;
    Ok(groups)
}
