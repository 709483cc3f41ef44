//! The optimizer of parameter groups, for any update rule.

use super::optimizer::{Optimizer, OptimizerState, ParamGroupState};
use super::param_group::{GroupOptions, ParamGroup, Parameter, groups_of_store};
use super::step_hooks::{AFTER, BEFORE, StepHooks};
use super::tensor_list::{TensorList, by_device_and_kind};
use super::update_rule::{GradientLayout, UpdateRule};
use super::{parameter_state::ParameterState, step::Step};
use crate::{Error, Result, check::check};
use c10d_sys::tensor::identity;
use std::collections::{BTreeMap, HashMap, HashSet};
use tch::{Tensor, nn::VarStore, no_grad};

/// Updates groups of parameters, each with options of its own: what [`Sgd`](super::Sgd),
/// [`Adam`](super::Adam) and the other optimizers have in common.
#[derive(Debug)]
pub struct ParamGroupOptimizer<R> {
    /// At least one.
    groups: Vec<ParamGroup<R>>,
    /// Those at [`BEFORE`] and at [`AFTER`].
    pub(super) hooks: [StepHooks; 2],
}

impl<R: UpdateRule> ParamGroupOptimizer<R> {
    /// An optimizer for the trainable variables of `vs`.
    ///
    /// If some of them have a group number ([`Path::set_group`](tch::nn::Path::set_group)), each
    /// number is a parameter group, in ascending order. All start with these options.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and for a store without parameters.
    pub fn new(vs: &VarStore, options: R) -> Result<Self> {
        let groups = groups_of_store(vs)?.into_values();
        Self::from_param_groups(groups.map(|group| ParamGroup::new(group, options.clone())))
    }

    /// An optimizer for the trainable variables of `vs`, with options for each group number that
    /// [`Path::set_group`](tch::nn::Path::set_group) gave them; without it, the number is 0. The
    /// parameter groups are in the order of this list.
    ///
    /// ```
    /// use tch::{Device, nn::VarStore};
    /// use tch_parallel::nn::{LinearOptions, linear};
    /// use tch_parallel::optim::{Sgd, SgdOptions};
    ///
    /// let vs = VarStore::new(Device::Cpu);
    /// let backbone = linear(vs.root() / "backbone", 8, 8, LinearOptions::default());
    /// let head = linear(vs.root().set_group(1) / "head", 8, 3, LinearOptions::default());
    ///
    /// let options = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    /// let optimizer =
    ///     Sgd::with_group_options(&vs, [(0, SgdOptions { lr: 0.01, ..options }), (1, options)])?;
    /// assert_eq!(optimizer.param_groups()[1].names(), ["head.weight", "head.bias"]);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and unless the list contains each
    /// group number of the store once, and no other.
    pub fn with_group_options(
        vs: &VarStore,
        options: impl IntoIterator<Item = (usize, R)>,
    ) -> Result<Self> {
        let mut of_store = groups_of_store(vs)?;
        let numbers: Vec<_> = of_store.keys().copied().collect();
        let mut groups = Vec::new();
        for (number, options) in options {
            let parameters = of_store.remove(&number).ok_or_else(|| {
                let expected = format!("one of the variable store, each once: {numbers:?}");
                Error::argument("a group number", number, expected)
            })?;
            groups.push(ParamGroup::new(parameters, options));
        }
        if let Some((number, parameters)) = of_store.into_iter().next() {
            let what = format!("group {number} of the variable store ({} …)", parameters[0].0);
            let expected = format!("in the list, like all its groups: {numbers:?}");
            return Err(Error::argument(what, "without options", expected));
        }
        Self::from_param_groups(groups)
    }

    /// An optimizer for one group of parameters; the list may be empty. The state uses their names.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and for a parameter or a name that appears twice.
    pub fn from_named_parameters(parameters: Vec<(String, Tensor)>, options: R) -> Result<Self> {
        Self::from_param_groups([ParamGroup::new(parameters, options)])
    }

    /// An optimizer for these groups. There is an example at [`ParamGroup`].
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, for an empty list, and for a
    /// parameter or a name that appears twice.
    pub fn from_param_groups(groups: impl IntoIterator<Item = ParamGroup<R>>) -> Result<Self> {
        let mut optimizer = ParamGroupOptimizer { groups: Vec::new(), hooks: Default::default() };
        groups.into_iter().try_for_each(|group| optimizer.add_param_group(group))?;
        let is_there = !optimizer.groups.is_empty();
        check(is_there, "the list of parameter groups", "empty", "one or more")?;
        Ok(optimizer)
    }

    /// Adds a group, for example when layers that were frozen start to train: `optimizer.add_param_group(group)`.
    ///
    /// # Errors
    /// [`Error::Argument`] for values that PyTorch refuses too, and for a parameter or a name that
    /// another group has, or that appears twice. The optimizer is then unchanged.
    pub fn add_param_group(&mut self, group: ParamGroup<R>) -> Result<()> {
        group.options.check()?;
        let (mut tensors, mut names) = (HashSet::new(), HashSet::new());
        let mut check_new = |Parameter { name, tensor, .. }: &Parameter, number| {
            let found = format_args!("in parameter group {number} and before that already");
            check(tensors.insert(identity(tensor)), name, found, "in one place")?;
            let found = format_args!("{name} for a second parameter, in parameter group {number}");
            check(names.insert(name.clone()), "a name", found, "that of one parameter")
        };
        for (number, group) in self.groups.iter().chain([&group]).enumerate() {
            group.parameters.iter().try_for_each(|parameter| check_new(parameter, number))?;
        }
        self.groups.push(group);
        Ok(())
    }

    /// The groups with all their options. [`Optimizer::param_groups`] returns them without the type of the options.
    pub fn param_groups(&self) -> &[ParamGroup<R>] {
        &self.groups
    }

    /// The groups, to change their options.
    pub fn param_groups_mut(&mut self) -> &mut [ParamGroup<R>] {
        &mut self.groups
    }

    fn parameters_mut(&mut self) -> impl Iterator<Item = &mut Parameter> {
        self.groups.iter_mut().flat_map(|group| &mut group.parameters)
    }

    /// Drops the state of all parameters but those whose names are chosen. Their next step begins anew.
    pub fn retain_state(&mut self, is_chosen: impl Fn(&str) -> bool) {
        let others = self.parameters_mut().filter(|parameter| !is_chosen(&parameter.name));
        others.for_each(|parameter| parameter.state = ParameterState::default());
    }

    /// Makes a step with the parameters whose names are chosen, for an optimizer that shares its parameters out.
    pub fn step_where(&mut self, is_chosen: impl Fn(&str) -> bool) -> Result<()> {
        self.step_with(|name, parameter| {
            Some(parameter.grad()).filter(|gradient| gradient.defined() && is_chosen(name))
        })
    }

    /// Makes a step with these parameters, as far as they are the optimizer's, and these gradients instead of their
    /// own: `step_param(parameter, gradient)` of `torch.distributed.optim`'s functional optimizers. A parameter whose
    /// gradient is undefined makes no step.
    ///
    /// ```
    /// use tch::{Device, Tensor, nn::VarStore};
    /// use tch_parallel::optim::{Sgd, SgdOptions};
    ///
    /// let vs = VarStore::new(Device::Cpu);
    /// let [weight, bias] = ["weight", "bias"].map(|name| vs.root().zeros(name, &[1]));
    /// let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() })?;
    /// let gradient = Tensor::from_slice(&[1f32]);
    /// optimizer.step_params(&[(weight.shallow_clone(), gradient), (bias.shallow_clone(), Tensor::new())])?;
    /// assert_eq!([&weight, &bias].map(|parameter| parameter.double_value(&[0])), [-0.5, 0.0]);
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn step_params(&mut self, with_gradients: &[(Tensor, Tensor)]) -> Result<()> {
        let gradients: HashMap<_, _> =
            with_gradients.iter().map(|(tensor, gradient)| (identity(tensor), gradient)).collect();
        self.step_with(|_, tensor| {
            let gradient = gradients.get(&identity(tensor)).filter(|it| it.defined())?;
            Some(gradient.shallow_clone())
        })
    }

    fn step_with(&mut self, gradient_of: impl Fn(&str, &Tensor) -> Option<Tensor>) -> Result<()> {
        self.run_hooks(BEFORE)?;
        // First, so that a gradient that is refused changes nothing.
        for ParamGroup { parameters, options, .. } in &self.groups {
            for Parameter { name, tensor, .. } in parameters {
                if let Some(gradient) = gradient_of(name, tensor) {
                    check_layout(options, name, &gradient)?;
                }
            }
        }
        no_grad(|| {
            for ParamGroup { parameters, options, .. } in &mut self.groups {
                let with_gradient = parameters.iter_mut().filter_map(|parameter| {
                    let gradient = gradient_of(&parameter.name, &parameter.tensor)?;
                    Some((parameter, gradient))
                });
                step_of_group(options, with_gradient.collect())?;
            }
            Ok::<_, Error>(())
        })?;
        self.run_hooks(AFTER)
    }
}

/// Makes the step of parameters with their gradients: in lists, or one after the other.
fn step_of_group<R: UpdateRule>(rule: &R, parameters: Vec<(&mut Parameter, Tensor)>) -> Result<()> {
    let on_gpus = || parameters.iter().all(|(parameter, _)| parameter.tensor.device().is_cuda());
    let one_by_one = |parameters: Vec<(&mut Parameter, Tensor)>| {
        parameters.into_iter().try_for_each(|parameter| step_of_list(rule, [parameter], false))
    };
    if !rule.foreach().unwrap_or_else(on_gpus) {
        return one_by_one(parameters);
    }
    for list in by_device_and_kind(parameters, |(parameter, _)| &parameter.tensor) {
        match list.iter().any(|(_, gradient)| gradient.is_sparse()) {
            true => one_by_one(list)?,
            false => step_of_list(rule, list, true)?,
        }
    }
    Ok(())
}

fn step_of_list<'a>(
    rule: &impl UpdateRule,
    parameters: impl IntoIterator<Item = (&'a mut Parameter, Tensor)>,
    foreach: bool,
) -> Result<()> {
    let parts = parameters.into_iter().map(|(Parameter { tensor, state, .. }, gradient)| {
        (tensor.shallow_clone(), gradient, state)
    });
    let (tensors, gradients, states): (Vec<_>, Vec<_>, Vec<_>) = parts.collect();
    let mut gradients = TensorList::new(gradients, foreach);
    if rule.maximize() {
        gradients = gradients.neg()?;
    }
    rule.step(Step { parameters: TensorList::new(tensors, foreach), gradients, states })
}

fn check_layout(rule: &impl UpdateRule, parameter: &str, gradient: &Tensor) -> Result<()> {
    let (found, expected) = match (rule.gradient_layout(), gradient.is_sparse()) {
        (GradientLayout::Dense, true) => {
            ("sparse", "dense; SparseAdam, Adagrad and SGD support sparse gradients")
        }
        (GradientLayout::Sparse, false) => ("dense", "sparse; Adam supports dense gradients"),
        _ => return Ok(()),
    };
    let what = format!("the gradient of {parameter}, for {},", rule.name());
    Err(Error::argument(what, found, expected))
}

impl<R: UpdateRule> Optimizer for ParamGroupOptimizer<R> {
    fn step(&mut self) -> Result<()> {
        self.step_where(|_| true)
    }

    fn param_groups(&self) -> Vec<&ParamGroup<dyn GroupOptions>> {
        self.groups.iter().map(|group| group as _).collect()
    }

    fn param_groups_mut(&mut self) -> Vec<&mut ParamGroup<dyn GroupOptions>> {
        self.groups.iter_mut().map(|group| group as _).collect()
    }

    /// The tensors kept for each parameter that has made a step, named `PARAMETER.NAME` with PyTorch's names.
    fn state_dict(&self) -> Result<OptimizerState> {
        let param_groups = self.groups.iter().map(ParamGroupState::new).collect::<Result<_>>()?;
        let mut tensors = Vec::new();
        for group in &self.groups {
            let layout = group.options.state_layout();
            for Parameter { name, state, .. } in &group.parameters {
                tensors.extend(state.named(name, &layout));
            }
        }
        let optimizer = self.groups[0].options.name().into();
        Ok(OptimizerState { optimizer, param_groups, tensors })
    }

    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        let options: Vec<R> = state.options_for(&self.groups)?;
        let mut dict: BTreeMap<&str, &Tensor> =
            state.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut states = Vec::new();
        for (group, options) in self.groups.iter().zip(&options) {
            let layout = options.state_layout();
            for Parameter { name, tensor, .. } in &group.parameters {
                states.push(ParameterState::take(name, tensor, &layout, &mut dict)?);
            }
        }
        if let Some(name) = dict.into_keys().next() {
            let layout = options[0].state_layout().into_iter();
            let names: Vec<_> = layout.map(|(name, _)| format!("PARAMETER.{name}")).collect();
            let expected = match names.is_empty() {
                true => "empty".into(),
                false => format!("{} for a parameter of this model", names.join(" or ")),
            };
            return Err(Error::argument("the optimizer state", name, expected));
        }
        // Only now, so that a state that is refused changes nothing.
        self.parameters_mut().zip(states).for_each(|(parameter, state)| parameter.state = state);
        let groups = self.groups.iter_mut().zip(options).zip(&state.param_groups);
        for ((group, options), saved) in groups {
            group.options = options;
            group.initial_lr = saved.initial_lr;
        }
        Ok(())
    }

    fn state_bytes(&self) -> usize {
        let parameters = self.groups.iter().flat_map(|group| &group.parameters);
        parameters.map(|parameter| parameter.state.bytes()).sum()
    }
}

#[cfg(test)]
mod tests;
