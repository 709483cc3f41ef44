//! What distinguishes one optimizer from another.

use super::param_group::GroupOptions;
use super::state_list::StateList;
use super::tensor_list::TensorList;
use crate::{Error, Result};
use c10d_sys::arithmetic::{add_number_, copy};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor, no_grad};

/// The options of an optimizer, and how they change a parameter by its gradient.
///
/// An implementation is all that [`ParamGroupOptimizer`](super::ParamGroupOptimizer) requires:
/// groups, schedules, [`GradScaler`](crate::amp::GradScaler),
/// [`ZeroRedundancyOptimizer`](super::ZeroRedundancyOptimizer) and
/// [checkpoints](crate::checkpoint) work with any.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::Result;
/// use tch_parallel::optim::{
///     GroupOptions, Optimizer, ParamGroupOptimizer, StateList, TensorList, UpdateRule,
/// };
///
/// /// Moves each weight by the learning rate, against its gradient's sign.
/// #[derive(Debug, Clone, Serialize, Deserialize)]
/// struct SignSgd {
///     lr: f64,
/// }
///
/// impl GroupOptions for SignSgd {
///     fn lr(&self) -> f64 {
///         self.lr
///     }
///     fn set_lr(&mut self, lr: f64) {
///         self.lr = lr;
///     }
/// }
///
/// impl UpdateRule for SignSgd {
///     fn name(&self) -> &'static str {
///         "SignSGD"
///     }
///     fn check(&self) -> Result<()> {
///         Ok(())
///     }
///     fn step(
///         &self,
///         parameters: &mut TensorList,
///         gradients: &TensorList,
///         _states: &mut StateList<'_>,
///     ) -> Result<()> {
///         for (parameter, gradient) in parameters.iter_mut().zip(gradients.iter()) {
///             // tch's operators panic where this should return an error.
///             let _ = parameter.f_sub_(&gradient.f_sign()?.f_mul(&Tensor::from(self.lr))?)?;
///         }
///         Ok(())
///     }
/// }
///
/// let vs = VarStore::new(Device::Cpu);
/// let weight = vs.root().zeros("weight", &[3]);
/// let mut optimizer = ParamGroupOptimizer::new(&vs, SignSgd { lr: 0.25 })?;
/// (&weight * 7.0).sum(Kind::Float).backward();
/// optimizer.step()?;
/// assert_eq!(weight.double_value(&[0]), -0.25);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub trait UpdateRule: GroupOptions + Clone + Serialize + DeserializeOwned + 'static {
    /// The name of the optimizer, PyTorch's where it has one. A state is loaded only by the
    /// optimizer whose name it has.
    fn name(&self) -> &'static str;

    /// Refuses options that PyTorch refuses.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument), naming the option.
    fn check(&self) -> Result<()>;

    /// The tensors that these options keep for a parameter that has made a step, with PyTorch's
    /// names. None unless implemented.
    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        Vec::new()
    }

    /// The gradients that it supports. Only dense ones unless implemented.
    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Dense
    }

    /// Whether [`step`](Self::step) gets all parameters of one kind on one device at once, as lists
    /// whose operations are PyTorch's `_foreach_*`, instead of one after the other: the option
    /// `foreach` of PyTorch's optimizers. With `None`, it gets lists if all of a group's parameters
    /// with a gradient are on GPUs. Those of a kind of which one has a sparse gradient
    /// never come as a list.
    ///
    /// Unless implemented, it gets one parameter after the other.
    fn foreach(&self) -> Option<bool> {
        Some(false)
    }

    /// Updates parameters by their gradients, without a graph. The lists have the same length.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) if an operation fails; parameters may already have
    /// changed.
    fn step(
        &self,
        parameters: &mut TensorList,
        gradients: &TensorList,
        states: &mut StateList<'_>,
    ) -> Result<()>;
}

/// The layouts of gradients that an optimizer supports. An embedding with `sparse` has sparse
/// gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientLayout {
    /// Gradients with a value for every element.
    Dense,
    /// Gradients with values for some elements: `torch.sparse_coo`.
    Sparse,
    /// Both.
    Any,
}

/// The shape of a tensor in a parameter's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateShape {
    /// A 32-bit number on the CPU, whatever the parameter's device: the host reads it in every
    /// step.
    Scalar,
    /// The parameter's shape, kind and device.
    Parameter,
}

/// The tensors that an optimizer keeps for one parameter: `optimizer.state[parameter]`.
///
/// Empty before the parameter's first step, so that parameters without gradients use no memory.
#[derive(Debug, Default)]
pub struct ParameterState {
    tensors: Vec<(&'static str, Tensor)>,
}

impl ParameterState {
    /// The tensor of this name. It is a handle: what changes it in place, changes the state.
    pub fn get(&self, name: &str) -> Option<Tensor> {
        let (_, tensor) = self.tensors.iter().find(|(found, _)| *found == name)?;
        Some(tensor.shallow_clone())
    }

    /// Stores a tensor under a name.
    pub fn insert(&mut self, name: &'static str, tensor: Tensor) {
        self.tensors.retain(|(found, _)| *found != name);
        self.tensors.push((name, tensor));
    }

    /// The tensor of this name, stored by `init` in the parameter's first step.
    ///
    /// # Errors
    /// Those of `init`.
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
    /// [`Error::Tensor`](crate::Error::Tensor) if memory has run out.
    pub fn count_step(&mut self) -> Result<f64> {
        let mut step = self.get_or_insert_with("step", scalar)?;
        add_number_(&mut step, 1.0)?;
        Ok(step.f_double_value(&[])?)
    }

    /// The moving average of this name, which starts at 0 for every element of `parameter`.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) if memory has run out.
    pub fn zeros_like(&mut self, name: &'static str, parameter: &Tensor) -> Result<Tensor> {
        Ok(self.get_or_insert_with(name, || parameter.f_zeros_like())?)
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        self.tensors.iter().map(|(_, tensor)| bytes(tensor)).sum()
    }

    /// What [`take`](Self::take) reads, named `PARAMETER.NAME`.
    pub(super) fn named(&self, parameter: &str, rule: &impl UpdateRule) -> Vec<(String, Tensor)> {
        let layout = rule.state_layout().into_iter();
        layout
            .filter_map(|(name, _)| Some((format!("{parameter}.{name}"), self.get(name)?)))
            .collect()
    }

    /// A copy of a parameter's state, removed from `dict`: all of its tensors or none.
    pub(super) fn take(
        parameter: &str,
        tensor: &Tensor,
        rule: &impl UpdateRule,
        dict: &mut BTreeMap<&str, &Tensor>,
    ) -> Result<Self> {
        let layout = rule.state_layout();
        let full_name = |name: &str| format!("{parameter}.{name}");
        let mut state = ParameterState::default();
        if !layout.iter().any(|(name, _)| dict.contains_key(full_name(name).as_str())) {
            return Ok(state);
        }
        for (name, shape) in &layout {
            let saved = dict.remove(full_name(name).as_str()).ok_or_else(|| {
                let all: Vec<_> = layout.iter().map(|(name, _)| full_name(name)).collect();
                Error::argument(
                    full_name(name),
                    "missing from the optimizer state",
                    format!("present: {} belong together", all.join(", ")),
                )
            })?;
            let expected = match shape {
                StateShape::Scalar => Vec::new(),
                StateShape::Parameter => tensor.size(),
            };
            if saved.size() != expected {
                return Err(Error::argument(
                    full_name(name),
                    format!("of shape {:?}", saved.size()),
                    format!("of shape {expected:?}"),
                ));
            }
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
