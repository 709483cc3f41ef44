//! What a rule updates at once.

use super::{parameter_state::ParameterState, tensor_list::TensorList};
use crate::{Error, Result};
use tch::Tensor;

/// Parameters that make a step together, with their gradients and states: the argument of
/// [`UpdateRule::step`](super::UpdateRule::step). All three lists have the same length and order.
#[derive(Debug)]
pub struct Step<'a> {
    /// The parameters, to be changed in place.
    pub parameters: TensorList,
    /// Their gradients, negated if the options say [`maximize`](super::GroupOptions::maximize).
    pub gradients: TensorList,
    /// What the optimizer keeps for each of them.
    pub states: Vec<&'a mut ParameterState>,
}

impl Step<'_> {
    /// The tensors of this name, if every parameter has one: [`ParameterState::get`].
    pub fn get(&self, name: &str) -> Option<TensorList> {
        let tensors = self.states.iter().map(|state| state.get(name)).collect::<Option<_>>()?;
        Some(TensorList::new(tensors, self.parameters.is_foreach()))
    }

    /// The tensors of this name, each stored by `init`, which gets the parameter, in its first step.
    pub fn get_or_insert_with<E: Into<Error>>(
        &mut self,
        name: &'static str,
        init: impl Fn(&Tensor) -> Result<Tensor, E>,
    ) -> Result<TensorList> {
        let states = self.states.iter_mut().zip(self.parameters.iter());
        let tensors = states.map(|(state, like)| state.get_or_insert_with(name, || init(like)));
        let tensors = tensors.collect::<Result<_, E>>();
        Ok(TensorList::new(tensors.map_err(Into::into)?, self.parameters.is_foreach()))
    }

    /// The moving averages of this name, all 0 at first, one for each element; complex numbers as pairs of real ones.
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn zeros_like(&mut self, name: &'static str) -> Result<TensorList> {
        self.get_or_insert_with(name, Tensor::f_zeros_like)?.as_real()
    }

    /// Counts this step in each parameter's state, as `step`, and returns the numbers of steps, this one included.
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn count(&mut self) -> Result<Vec<f64>> {
        self.states.iter_mut().map(|state| state.count_step()).collect()
    }
}
