//! What all optimizers can do: PyTorch's base class `Optimizer`.

use crate::parameters::named_parameters;
use crate::{Error, Result};
use c10d_sys::tensor::clear_grad;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use tch::Tensor;
use tch::nn::VarStore;

/// Something that improves parameters by their gradients: `torch.optim.Optimizer`.
///
/// Schedules, [`GradScaler`](crate::amp::GradScaler) and [checkpoints](crate::checkpoint) work with
/// any of them.
pub trait Optimizer: Debug {
    /// One step along the gradients. A parameter without a gradient stays as it is.
    ///
    /// # Errors
    /// [`Error::Tensor`] if an operation fails; some parameters may have been changed then.
    fn step(&mut self) -> Result<()>;

    /// Forgets all gradients, so that the next backward pass begins anew.
    ///
    /// They are dropped rather than filled with zeros (PyTorch's `set_to_none=True`): a parameter
    /// that gets none is left alone, and the gradients may be views into buckets.
    ///
    /// # Errors
    /// [`Error::Tensor`] if libtorch refuses.
    fn zero_grad(&mut self) -> Result<()> {
        for mut parameter in self.parameters() {
            clear_grad(&mut parameter).map_err(Error::engine("zero_grad"))?;
        }
        Ok(())
    }

    /// What is optimized, in PyTorch's order: where the gradients are to be found.
    fn parameters(&self) -> Vec<Tensor>;

    /// The learning rate. `optimizer.param_groups[0]["lr"]`
    fn lr(&self) -> f64;

    /// Sets the learning rate of the steps to come.
    fn set_lr(&mut self, lr: f64);

    /// Collects on rank `to` the state that lies on other ranks, so that
    /// [`state_dict`](Self::state_dict) has all of it there. A collective. Nothing is to be done for
    /// an optimizer that has its whole state on every rank.
    ///
    /// # Errors
    /// [`Error::Collective`] when a rank could not be reached.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        let _ = to;
        Ok(())
    }

    /// What the next step depends on beside parameters and gradients.
    ///
    /// The tensors are the optimizer's own, as in PyTorch, so that saving them takes no memory: the
    /// next step changes them.
    ///
    /// # Errors
    /// [`Error::Argument`] if the state is not all here, or if an option is no number in JSON.
    fn state_dict(&self) -> Result<OptimizerState>;

    /// Takes over a copy of a state that [`state_dict`](Self::state_dict) gave, and with it the learning rate
    /// and all other options, as in PyTorch. To go on with other ones, set them afterwards.
    ///
    /// # Errors
    /// [`Error::Argument`] for the state of another kind of optimizer, for a name that no parameter
    /// has, a shape that is not the parameter's, or a parameter of which only a part is there. The
    /// optimizer is unchanged then.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()>;

    /// Bytes that the state occupies, for a report of where memory goes.
    fn state_bytes(&self) -> usize;
}

/// What [`Optimizer::state_dict`] gives.
#[derive(Debug, PartialEq)]
pub struct OptimizerState {
    /// Whose it is, by PyTorch's name (`SGD`): an optimizer takes no other's.
    pub optimizer: String,
    /// The options, with the present learning rate: PyTorch's `param_groups`.
    pub options: serde_json::Value,
    /// What is remembered of each parameter that has made a step, named `PARAMETER.ENTRY`: PyTorch's
    /// `state`, under its names (`fc.weight.momentum_buffer`).
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
            expected: "made of finite numbers, to be saved: JSON knows no others".into(),
        };
        let options = serde_json::to_value(options).map_err(|error| refused(error.to_string()))?;
        // What is infinite or NaN becomes null, which could not be loaded again.
        let lost = |options: &serde_json::Map<_, serde_json::Value>| {
            options.values().any(serde_json::Value::is_null)
        };
        if options.as_object().is_some_and(lost) {
            return Err(refused(options.to_string()));
        }
        Ok(OptimizerState { optimizer: optimizer.into(), options, tensors })
    }

    /// The options, if the state is that of this optimizer.
    pub(super) fn options_for<O: DeserializeOwned>(&self, optimizer: &str) -> Result<O> {
        if self.optimizer != optimizer {
            return Err(Error::Argument {
                what: "the optimizer state".into(),
                found: format!("that of {}", self.optimizer),
                expected: format!("that of {optimizer}, which this optimizer is"),
            });
        }
        O::deserialize(&self.options).map_err(|error| Error::Argument {
            what: format!("the options in the state of {optimizer}"),
            found: format!("{} ({error})", self.options),
            expected: "what `state_dict` has given".into(),
        })
    }
}

/// The trainable variables of a store, of which there must be some.
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

/// Refuses what PyTorch refuses of a learning rate and the like.
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
