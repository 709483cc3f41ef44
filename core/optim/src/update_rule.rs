//! What distinguishes one optimizer from another.

use super::{param_group::GroupOptions, parameter_state::StateShape, step::Step};
use crate::Result;
use serde::{Serialize, de::DeserializeOwned};

/// The options of an optimizer, and how they change a parameter by its gradient.
///
/// An implementation is all that [`ParamGroupOptimizer`](super::ParamGroupOptimizer) requires:
/// groups, schedules, `GradScaler`, `ZeroRedundancyOptimizer` and checkpoints work with any.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tch::{Device, Kind, Tensor, nn::VarStore};
/// use tch_parallel::Result;
/// use tch_parallel::optim::{GroupOptions, Optimizer, ParamGroupOptimizer, Step, UpdateRule};
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
///     fn step(&self, mut step: Step<'_>) -> Result<()> {
///         for (parameter, gradient) in step.parameters.iter_mut().zip(step.gradients.iter()) {
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
    /// The optimizer's name, PyTorch's where it has one. A state is loaded only by the optimizer whose name it has.
    fn name(&self) -> &'static str;

    /// Refuses options that PyTorch refuses. None unless implemented.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument), naming the option.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The tensors that these options keep for a parameter after a step, with PyTorch's names. None unless implemented.
    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        Vec::new()
    }

    /// The gradients that it supports. Only dense ones unless implemented.
    fn gradient_layout(&self) -> GradientLayout {
        GradientLayout::Dense
    }

    /// Updates parameters by their gradients, without a graph.
    ///
    /// # Errors
    /// [`Error::Tensor`](crate::Error::Tensor) if an operation fails; parameters may already have changed.
    fn step(&self, step: Step<'_>) -> Result<()>;
}

/// The layouts of gradients that an optimizer supports. An embedding with `sparse` has sparse gradients.
///
/// ```
/// use tch_parallel::optim::{AdamOptions, GradientLayout, SgdOptions, UpdateRule};
///
/// assert_eq!(AdamOptions::default().gradient_layout(), GradientLayout::Dense);
/// assert_eq!(SgdOptions::default().gradient_layout(), GradientLayout::Any);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientLayout {
    /// Gradients with a value for every element.
    Dense,
    /// Gradients with values for some elements: `torch.sparse_coo`.
    Sparse,
    /// Both.
    Any,
}
