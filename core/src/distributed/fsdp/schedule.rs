//! What the units of a model know of each other during a step: `FSDPCommContext` and `FSDPState`.

use super::unit::Unit;
use crate::{Error, Result};
use c10d_sys::backward_hooks::at_end_of_backward;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Shared by all units of a model.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    /// All units, the root first.
    units: Mutex<Vec<Weak<Unit>>>,
    step: Mutex<Step>,
}

#[derive(Debug, Default)]
struct Step {
    /// The units in the order of their forward passes, once for each that can be followed by a backward
    /// pass.
    post_forward_order: Vec<Weak<Unit>>,
    /// Whether the end of the backward pass that runs is watched.
    is_watched: bool,
    /// How many blocks' forward passes are running, one inside the other.
    depth: usize,
    /// Why the pass has failed.
    failure: Option<Error>,
}

impl Schedule {
    pub fn add(&self, unit: &Arc<Unit>, is_root: bool) {
        let mut units = lock(&self.units);
        let place = if is_root { 0 } else { units.len() };
        units.insert(place, Arc::downgrade(unit));
    }

    pub fn units(&self) -> Vec<Arc<Unit>> {
        lock(&self.units).iter().filter_map(Weak::upgrade).collect()
    }

    /// Notes the forward pass of a unit, and returns its place in the order.
    pub fn note_forward(&self, unit: &Arc<Unit>) -> usize {
        let order = &mut lock(&self.step).post_forward_order;
        order.push(Arc::downgrade(unit));
        order.len() - 1
    }

    /// The unit whose forward pass came before that one, and whose backward pass comes after it.
    pub fn before(&self, place: usize) -> Option<Arc<Unit>> {
        lock(&self.step).post_forward_order.get(place.checked_sub(1)?)?.upgrade()
    }

    /// Has the units that no hook has told of the backward pass do what is left, once it is over.
    pub fn watch_backward(self: &Arc<Self>) -> Result<()> {
        if std::mem::replace(&mut lock(&self.step).is_watched, true) {
            return Ok(());
        }
        let watch = Watch { schedule: Arc::clone(self), has_ended: AtomicBool::new(false) };
        at_end_of_backward(move || watch.end()).map_err(Error::engine("backward"))
    }

    fn finish_backward(&self) -> Result<()> {
        for unit in self.units() {
            unit.finish_backward()?;
        }
        let mut step = lock(&self.step);
        *step = Step { depth: step.depth, ..Step::default() };
        Ok(())
    }

    /// For a hook: keeps the error for whoever has started the backward pass.
    pub fn kept(&self, result: Result<()>) -> Result<(), c10d_sys::Error> {
        result.map_err(|error| {
            let message = error.to_string();
            lock(&self.step).failure.get_or_insert(error);
            message.into()
        })
    }

    /// Runs the forward pass of a block's module. If a block inside it has failed, returns its error.
    pub fn run<T>(&self, forward: impl FnOnce() -> T) -> Result<T> {
        lock(&self.step).depth += 1;
        let outcome = catch_unwind(AssertUnwindSafe(forward));
        lock(&self.step).depth -= 1;
        outcome.or_else(|panic| match lock(&self.step).failure.take() {
            Some(error) => Err(error),
            None => resume_unwind(panic),
        })
    }

    /// Ends the forward pass that has failed: within that of another block, which returns the error,
    /// and otherwise with a panic, because the caller expects no error.
    pub fn fail(&self, error: Error) -> ! {
        let message = error.to_string();
        {
            let mut step = lock(&self.step);
            if step.depth > 0 {
                step.failure = Some(error);
                drop(step);
                resume_unwind(Box::new(message));
            }
        }
        panic!("{message}")
    }

    /// Takes back what a pass that has failed has left half done.
    fn reset(&self) {
        for unit in self.units() {
            unit.reset();
        }
        let mut step = lock(&self.step);
        *step = Step { depth: step.depth, failure: step.failure.take(), ..Step::default() };
    }

    /// Why the last pass has failed.
    pub fn recover(&self) -> Option<Error> {
        self.reset();
        lock(&self.step).failure.take()
    }
}

/// Waits for the end of a backward pass, which need not be that of this model alone. If the pass fails,
/// autograd drops this without calling it.
struct Watch {
    schedule: Arc<Schedule>,
    has_ended: AtomicBool,
}

impl Watch {
    fn end(&self) -> Result<(), c10d_sys::Error> {
        let outcome = self.schedule.kept(self.schedule.finish_backward());
        self.has_ended.store(outcome.is_ok(), Ordering::Relaxed);
        outcome
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.has_ended.load(Ordering::Relaxed) {
            self.schedule.reset();
        }
    }
}

/// What a panic has left is put in order by `recover`.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
