//! What all schedulers have in common, and the state that is saved.

use crate::{Error, Result, check::check};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::fmt::Debug;

/// A scheduler, whatever makes it step: [`LrScheduler`](super::LrScheduler) and
/// [`ReduceLrOnPlateau`](super::ReduceLrOnPlateau). Checkpoints work with both.
pub trait Scheduler: Debug {
    /// The learning rate of each parameter group after the last step: `get_last_lr()`.
    fn last_lr(&self) -> &[f64];

    /// The state of the schedule. The learning rates themselves, and the momentum, are in the optimizer's state.
    ///
    /// # Errors
    /// [`Error::Argument`] if JSON cannot represent it.
    fn state_dict(&self) -> Result<LrSchedulerState>;

    /// Restores a state. Also restore the optimizer's, before or after.
    ///
    /// # Errors
    /// [`Error::Argument`] for the state of another schedule, or of the same one with other settings. PyTorch would
    /// silently continue with the saved settings: resuming with more epochs than before would make a cosine rise again.
    /// Here the error shows both. Either create the schedule with the saved settings, or leave the saved state and
    /// start a new schedule from the optimizer's state, which contains the initial rates.
    fn load_state_dict(&mut self, state: &LrSchedulerState) -> Result<()>;
}

/// What [`Scheduler::state_dict`] returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LrSchedulerState {
    /// The schedule and its settings.
    pub schedule: String,
    /// What the next step depends on, with PyTorch's names.
    pub state: Value,
}

impl LrSchedulerState {
    pub(super) fn new(schedule: &impl Debug, state: &impl Serialize) -> Result<Self> {
        let state = serde_json::to_value(state).map_err(|error| {
            Error::argument("the state of the schedule", error, "made of what JSON supports")
        })?;
        Ok(LrSchedulerState { schedule: format!("{schedule:?}"), state })
    }

    /// The state, if it belongs to this schedule.
    pub(super) fn of<T: DeserializeOwned>(&self, schedule: &impl Debug) -> Result<T> {
        let (what, own) = ("the state of the schedule", format!("{schedule:?}"));
        let found = format_args!("that of {}", self.schedule);
        let expected =
            format_args!("that of {own}; resume with the schedule that it was saved with");
        check(self.schedule == own, what, found, expected)?;
        T::deserialize(&self.state).map_err(|error| {
            Error::argument(what, format!("{} ({error})", self.state), "what `state_dict` returned")
        })
    }
}
