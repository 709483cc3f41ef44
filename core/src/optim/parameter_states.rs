//! Parameters and the optimizer's state of each: `param_groups` and `state` of PyTorch's base class
//! `Optimizer`.

use crate::{Error, Result};
use std::collections::BTreeMap;
use tch::{TchError, Tensor, no_grad};

/// The state of a parameter: N tensors.
#[derive(Debug)]
pub(super) struct StateLayout<const N: usize> {
    /// PyTorch's names of the tensors; in a state dict, `PARAMETER.NAME`.
    pub names: [&'static str; N],
    /// The initial tensors of a parameter, which define shapes, kinds and devices.
    pub fresh: fn(&Tensor) -> Result<[Tensor; N], TchError>,
}

/// The parameters of an optimizer, each with its state.
#[derive(Debug)]
pub(super) struct ParameterStates<const N: usize> {
    layout: StateLayout<N>,
    parameters: Vec<Parameter<N>>,
}

#[derive(Debug)]
struct Parameter<const N: usize> {
    name: String,
    tensor: Tensor,
    /// `None` before the parameter's first step, so that parameters without gradients use no
    /// memory.
    state: Option<[Tensor; N]>,
}

impl<const N: usize> ParameterStates<N> {
    pub(super) fn new(parameters: Vec<(String, Tensor)>, layout: StateLayout<N>) -> Self {
        let parameters = parameters
            .into_iter()
            .map(|(name, tensor)| Parameter { name, tensor, state: None })
            .collect();
        ParameterStates { layout, parameters }
    }

    pub(super) fn tensors(&self) -> Vec<Tensor> {
        self.parameters.iter().map(|parameter| parameter.tensor.shallow_clone()).collect()
    }

    /// Calls `update` with each parameter that has a gradient, the gradient, and the state.
    pub(super) fn step(
        &mut self,
        update: impl Fn(&mut Tensor, Tensor, &mut Option<[Tensor; N]>) -> Result<()>,
    ) -> Result<()> {
        no_grad(|| {
            for Parameter { tensor, state, .. } in &mut self.parameters {
                let gradient = tensor.grad();
                if gradient.defined() {
                    update(tensor, gradient, state)?;
                }
            }
            Ok(())
        })
    }

    pub(super) fn bytes(&self) -> usize {
        let states = self.parameters.iter().flat_map(|parameter| parameter.state.iter().flatten());
        states.map(|tensor| tensor.numel() * tensor.kind().elt_size_in_bytes()).sum()
    }

    /// All states, named `PARAMETER.NAME`.
    pub(super) fn named(&self) -> Vec<(String, Tensor)> {
        let mut dict = Vec::new();
        for parameter in &self.parameters {
            for (name, tensor) in self.layout.names.iter().zip(parameter.state.iter().flatten()) {
                dict.push((format!("{}.{name}", parameter.name), tensor.shallow_clone()));
            }
        }
        dict
    }

    /// Copies what [`named`](Self::named) returned, all of it or nothing.
    pub(super) fn load(&mut self, dict: &[(String, Tensor)]) -> Result<()> {
        let mut dict: BTreeMap<&str, &Tensor> =
            dict.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let states = self
            .parameters
            .iter()
            .map(|parameter| parameter.take_state(&self.layout, &mut dict))
            .collect::<Result<Vec<_>>>()?;
        if let Some(name) = dict.into_keys().next() {
            let names = self.layout.names.map(|name| format!("PARAMETER.{name}")).join(" or ");
            return Err(Error::Argument {
                what: "the optimizer state".into(),
                found: name.into(),
                expected: format!("{names} for a parameter of this model"),
            });
        }
        for (parameter, state) in self.parameters.iter_mut().zip(states) {
            parameter.state = state;
        }
        Ok(())
    }
}

impl<const N: usize> Parameter<N> {
    /// A copy of this parameter's state, removed from `dict`: all of its tensors or none.
    fn take_state(
        &self,
        layout: &StateLayout<N>,
        dict: &mut BTreeMap<&str, &Tensor>,
    ) -> Result<Option<[Tensor; N]>> {
        let names = layout.names.map(|name| format!("{}.{name}", self.name));
        if !names.iter().any(|name| dict.contains_key(name.as_str())) {
            return Ok(None);
        }
        let mut state = (layout.fresh)(&self.tensor).map_err(Error::tensor("load_state_dict"))?;
        for (name, tensor) in names.iter().zip(&mut state) {
            let argument = |found: String, expected: String| Error::Argument {
                what: name.clone(),
                found,
                expected,
            };
            let saved = dict.remove(name.as_str()).ok_or_else(|| {
                argument(
                    "missing from the optimizer state".into(),
                    format!("present: {} belong together", names.join(", ")),
                )
            })?;
            if saved.size() != tensor.size() {
                return Err(argument(
                    format!("of shape {:?}", saved.size()),
                    format!("of shape {:?}", tensor.size()),
                ));
            }
            no_grad(|| tensor.f_copy_(saved)).map_err(Error::tensor("load_state_dict"))?;
        }
        Ok(Some(state))
    }
}
