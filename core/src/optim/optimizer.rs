//! What all optimizers have in common: PyTorch's base class `Optimizer`.

use crate::parameters::named_parameters;
use crate::{Error, Result};
use c10d_sys::tensor::clear_grad;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tch::Tensor;
use tch::nn::VarStore;

/// Updates parameters by their gradients: `torch.optim.Optimizer`.
///
/// Schedules, [`GradScaler`](crate::amp::GradScaler) and [checkpoints](crate::checkpoint) work with
/// any of them.
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
        for mut parameter in self.parameters() {
            clear_grad(&mut parameter).map_err(Error::engine("zero_grad"))?;
        }
        Ok(())
    }

    /// The parameters, in PyTorch's order: this is where to find the gradients.
    fn parameters(&self) -> Vec<Tensor>;

    /// The learning rate. `optimizer.param_groups[0]["lr"]`
    fn lr(&self) -> f64;

    /// Sets the learning rate of later steps.
    fn set_lr(&mut self, lr: f64);

    /// Gathers on rank `to` the state that is on other ranks, so that
    /// [`state_dict`](Self::state_dict) is complete there. A collective. It does nothing for an
    /// optimizer that has its whole state on every rank.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank could not be reached.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        let _ = to;
        Ok(())
    }

    /// What the next step depends on besides parameters and gradients.
    ///
    /// The tensors are the optimizer's own, as in PyTorch, so saving them takes no extra memory,
    /// and the next step changes them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the state on this rank is incomplete, or if JSON cannot represent an
    /// option.
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

/// What [`Optimizer::state_dict`] returns.
#[derive(Debug, PartialEq)]
pub struct OptimizerState {
    /// PyTorch's name of the optimizer (`SGD`); no other kind loads it.
    pub optimizer: String,
    /// The options, with the current learning rate: PyTorch's `param_groups`.
    pub options: serde_json::Value,
    /// The state of each parameter that has made a step, named `PARAMETER.ENTRY`: PyTorch's
    /// `state`, with its names (`fc.weight.momentum_buffer`).
    pub tensors: Vec<(String, Tensor)>,
}

impl OptimizerState {
    pub(super) fn new(
        optimizer: &str,
        options: &impl Serialize,
        tensors: Vec<(String, Tensor)>,
    ) -> Result<Self> {
        let refused = |found: String| Error::Argument {
            what: format!("the options of {optimizer}"),
            found,
            expected: "made of finite numbers, because JSON cannot represent others".into(),
        };
        let options = serde_json::to_value(options).map_err(|error| refused(error.to_string()))?;
        // Infinity and NaN would become null, which cannot be loaded again.
        let lost = |options: &serde_json::Map<_, serde_json::Value>| {
            options.values().any(serde_json::Value::is_null)
        };
        if options.as_object().is_some_and(lost) {
            return Err(refused(options.to_string()));
        }
        Ok(OptimizerState { optimizer: optimizer.into(), options, tensors })
    }

    /// The options, if the state belongs to this optimizer.
    pub(super) fn options_for<O: DeserializeOwned>(&self, optimizer: &str) -> Result<O> {
        if self.optimizer != optimizer {
            return Err(Error::Argument {
                what: "the optimizer state".into(),
                found: format!("that of {}", self.optimizer),
                expected: format!("that of {optimizer}, which is this optimizer"),
            });
        }
        O::deserialize(&self.options).map_err(|error| Error::Argument {
            what: format!("the options in the state of {optimizer}"),
            found: format!("{} ({error})", self.options),
            expected: "what `state_dict` returned".into(),
        })
    }
}

/// The trainable variables of a store, which must not be empty.
pub(super) fn trainable(vs: &VarStore) -> Result<Vec<(String, Tensor)>> {
    let parameters = named_parameters(vs);
    if parameters.is_empty() {
        return Err(Error::Argument {
            what: "vs".into(),
            found: "a variable store without a trainable variable".into(),
            expected: "that of a model; build the model before its optimizer".into(),
        });
    }
    Ok(parameters)
}

/// Refuses the same values for a learning rate and the like as PyTorch.
pub(super) fn check_not_negative(options: &[(&str, f64)]) -> Result<()> {
    for (what, value) in options {
        if value.is_nan() || *value < 0.0 {
            return Err(Error::Argument {
                what: (*what).into(),
                found: value.to_string(),
                expected: "a number not below 0".into(),
            });
        }
    }
    Ok(())
}
