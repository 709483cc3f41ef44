//! The states of several parameters at once.

use super::parameter_state::ParameterState;
use super::tensor_list::TensorList;
use crate::{Error, Result};
use std::ops::{Deref, DerefMut};
use tch::Tensor;

/// The states of the parameters that make a step, in their order: an argument of
/// [`UpdateRule::step`](super::UpdateRule::step). Dereferences to a slice of [`ParameterState`]s.
#[derive(Debug)]
pub struct StateList<'a> {
    states: Vec<&'a mut ParameterState>,
    foreach: bool,
}

impl<'a> Deref for StateList<'a> {
    type Target = [&'a mut ParameterState];

    fn deref(&self) -> &Self::Target {
        &self.states
    }
}

impl DerefMut for StateList<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.states
    }
}

impl<'a> StateList<'a> {
    pub(super) fn new(states: Vec<&'a mut ParameterState>, foreach: bool) -> Self {
        StateList { states, foreach }
    }

    /// The tensors of this name, if every parameter has one: [`ParameterState::get`].
    pub fn get(&self, name: &str) -> Option<TensorList> {
        let tensors = self.iter().map(|state| state.get(name)).collect::<Option<_>>()?;
        Some(TensorList::new(tensors, self.foreach))
    }

    /// The tensors of this name, each stored by `init` in its parameter's first step. `init` gets
    /// the parameter's place in the list.
    ///
    /// # Errors
    /// Those of `init`.
    pub fn get_or_insert_with<E: Into<Error>>(
        &mut self,
        name: &'static str,
        init: impl Fn(usize) -> Result<Tensor, E>,
    ) -> Result<TensorList> {
        let tensors = self
            .states
            .iter_mut()
            .enumerate()
            .map(|(i, state)| state.get_or_insert_with(name, || init(i)))
            .collect::<Result<_, E>>();
        Ok(TensorList::new(tensors.map_err(Into::into)?, self.foreach))
    }

    /// The moving averages of this name: [`ParameterState::zeros_like`].
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn zeros_like(
        &mut self,
        name: &'static str,
        parameters: &TensorList,
    ) -> Result<TensorList> {
        self.get_or_insert_with(name, |i| parameters[i].f_zeros_like())
    }

    /// Counts a step of each parameter: [`ParameterState::count_step`].
    ///
    /// # Errors
    /// [`Error::Tensor`] if memory has run out.
    pub fn count_step(&mut self) -> Result<Vec<f64>> {
        self.iter_mut().map(|state| state.count_step()).collect()
    }
}
