//! What an optimizer keeps for each parameter.

use crate::{Error, Result, check::check};
use c10d_sys::arithmetic::{add_number_, copy};
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor, no_grad};

/// The shape of a tensor in a parameter's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateShape {
    /// A 32-bit number on the CPU, whatever the parameter's device: the host reads it in every step.
    Scalar,
    /// The parameter's shape, kind and device.
    Parameter,
}

/// The tensors of a parameter's state, by their names.
pub(super) type StateLayout = [(&'static str, StateShape)];

/// The tensors that an optimizer keeps for one parameter: `optimizer.state[parameter]`.
///
/// Empty before the parameter's first step, so that parameters without gradients use no memory.
#[derive(Debug, Default)]
pub struct ParameterState {
    tensors: BTreeMap<&'static str, Tensor>,
}

impl ParameterState {
    /// The tensor of this name. It is a handle: what changes it in place, changes the state.
    pub fn get(&self, name: &str) -> Option<Tensor> {
        self.tensors.get(name).map(Tensor::shallow_clone)
    }

    /// Stores a tensor under a name.
    pub fn insert(&mut self, name: &'static str, tensor: Tensor) {
        self.tensors.insert(name, tensor);
    }

    /// The tensor of this name, stored by `init` in the parameter's first step.
    pub fn get_or_insert_with<E>(
        &mut self,
        name: &'static str,
        init: impl FnOnce() -> Result<Tensor, E>,
    ) -> Result<Tensor, E> {
        if let Some(tensor) = self.get(name) {
            return Ok(tensor);
        }
        let tensor = init()?;
        self.insert(name, tensor.shallow_clone());
        Ok(tensor)
    }

    /// Counts a step in the tensor `step`, and returns how many there were, this one included.
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn count_step(&mut self) -> Result<f64> {
        let mut step = self.get_or_insert_with("step", scalar)?;
        add_number_(&mut step, 1.0)?;
        Ok(step.f_double_value(&[])?)
    }

    /// The moving average of this name, which starts at 0 for every element of `parameter`.
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn zeros_like(&mut self, name: &'static str, parameter: &Tensor) -> Result<Tensor> {
        Ok(self.get_or_insert_with(name, || parameter.f_zeros_like())?)
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        self.tensors.values().map(bytes).sum()
    }

    /// What [`take`](Self::take) reads, named `PARAMETER.NAME`.
    pub(super) fn named(&self, parameter: &str, layout: &StateLayout) -> Vec<(String, Tensor)> {
        let tensor = |name| Some((format!("{parameter}.{name}"), self.get(name)?));
        layout.iter().filter_map(|(name, _)| tensor(name)).collect()
    }

    /// A copy of a parameter's state, removed from `dict`: all of its tensors or none.
    pub(super) fn take(
        parameter: &str,
        tensor: &Tensor,
        layout: &StateLayout,
        dict: &mut BTreeMap<&str, &Tensor>,
    ) -> Result<Self> {
        let full_name = |name: &str| format!("{parameter}.{name}");
        let mut state = ParameterState::default();
        if !layout.iter().any(|(name, _)| dict.contains_key(full_name(name).as_str())) {
            return Ok(state);
        }
        for (name, shape) in layout {
            let saved = dict.remove(full_name(name).as_str()).ok_or_else(|| {
                let all: Vec<_> = layout.iter().map(|(name, _)| full_name(name)).collect();
                let expected = format!("present: {} belong together", all.join(", "));
                Error::argument(full_name(name), "missing from the optimizer state", expected)
            })?;
            let size = match shape {
                StateShape::Scalar => Vec::new(),
                StateShape::Parameter => tensor.size(),
            };
            let found = format_args!("of shape {:?}", saved.size());
            check(saved.size() == size, full_name(name), found, format_args!("of shape {size:?}"))?;
            let own = match shape {
                StateShape::Scalar => filled(scalar()?, saved)?,
                // The momentum of sparse gradients.
                StateShape::Parameter if saved.is_sparse() => copy(saved)?.f_to(tensor.device())?,
                StateShape::Parameter => filled(tensor.f_zeros_like()?, saved)?,
            };
            state.insert(name, own);
        }
        Ok(state)
    }
}

fn filled(mut tensor: Tensor, values: &Tensor) -> Result<Tensor> {
    no_grad(|| tensor.f_copy_(values))?;
    Ok(tensor)
}

fn scalar() -> Result<Tensor> {
    Ok(Tensor::f_zeros([0; 0], (Kind::Float, Device::Cpu))?)
}
