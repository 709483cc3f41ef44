//! What distinguishes one optimizer from another.

use super::param_group::GroupOptions;
use super::parameter_state::StateShape;
use super::state_list::StateList;
use super::tensor_list::TensorList;
use crate::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The options of an optimizer, and how they change a parameter by its gradient.
///
/// An implementation is all that [`ParamGroupOptimizer`](super::ParamGroupOptimizer) requires:
/// groups, schedules, `GradScaler`, `ZeroRedundancyOptimizer` and checkpoints work with any.
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
