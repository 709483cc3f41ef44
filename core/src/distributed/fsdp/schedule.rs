//! What the units of a model share during a step: `FSDPCommContext` and `FSDPState`.

use super::pool::Pool;
use crate::{Error, Result};
use c10d_sys::backward_hooks::{at_end_of_backward, in_backward};
use c10d_sys::tensor::grad_enabled;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tch_parallel_base::lock;

/// What the schedule needs of a unit.
pub(super) trait Member: Send + Sync + 'static {
    /// Completes the unit's backward pass when the whole pass ends.
    fn finish_backward(&self) -> Result<()>;

    /// Undoes what a failed pass has left half done.
    fn reset(&self);
}

/// Shared by all units of a model.
pub(super) struct Schedule<U> {
    /// All units, each before those inside it.
    units: Mutex<Vec<Weak<U>>>,
    step: Mutex<Step<U>>,
    /// The memory of whole parameters.
    pub pool: Mutex<Pool>,
    /// How long this rank has spent in collectives, and the number of backward passes.
    waited: Mutex<(Duration, u32)>,
    /// Whether the whole model has been built.
    is_complete: AtomicBool,
}

struct Step<U> {
    /// The units in the order of their forward passes, without passes that compute no gradients.
    post_forward_order: Vec<Weak<U>>,
    /// Whether the end of the current backward pass is watched.
    is_watched: bool,
    /// The number of nested forward passes that are running.
    depth: usize,
    failure: Option<Error>,
}

impl<U> Default for Schedule<U> {
    fn default() -> Self {
        let (units, step, pool, waited, is_complete) = Default::default();
        Schedule { units, step, pool, waited, is_complete }
    }
}

impl<U> Default for Step<U> {
    fn default() -> Self {
        Step { post_forward_order: Vec::new(), is_watched: false, depth: 0, failure: None }
    }
}

impl<U: Member> Schedule<U> {
    /// How many units there are.
    pub fn len(&self) -> usize {
        lock(&self.units).len()
    }

    pub fn add(&self, unit: &Arc<U>, place: usize) {
        lock(&self.units).insert(place, Arc::downgrade(unit));
    }

    pub fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    pub fn units(&self) -> Vec<Arc<U>> {
        lock(&self.units).iter().filter_map(Weak::upgrade).collect()
    }

    /// Runs a collective, and notes how long it took, if it belongs to a training step.
    pub fn waiting<T>(&self, collective: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = collective();
        if in_backward() || grad_enabled() {
            lock(&self.waited).0 += began.elapsed();
        }
        result
    }

    /// How long this rank has spent in the collectives of a step, on average.
    pub fn waiting_time(&self) -> Duration {
        let (waited, passes) = *lock(&self.waited);
        waited / passes.max(1)
    }

    /// Records a unit's forward pass and returns its place in the order.
    pub fn note_forward(&self, unit: &Arc<U>) -> usize {
        let order = &mut lock(&self.step).post_forward_order;
        order.push(Arc::downgrade(unit));
        order.len() - 1
    }

    /// The unit before this place in the order, whose backward pass comes next.
    pub fn before(&self, place: usize) -> Option<Arc<U>> {
        lock(&self.step).post_forward_order.get(place.checked_sub(1)?)?.upgrade()
    }

    /// Completes the backward pass of all units when the whole pass ends.
    pub fn watch_backward(self: &Arc<Self>) -> Result<()> {
        if std::mem::replace(&mut lock(&self.step).is_watched, true) {
            return Ok(());
        }
        let watch = Watch { schedule: Arc::clone(self), has_ended: AtomicBool::new(false) };
        at_end_of_backward(move || watch.end()).map_err(Error::engine("backward"))
    }

    fn finish_backward(&self) -> Result<()> {
        self.units().iter().try_for_each(|unit| unit.finish_backward())?;
        lock(&self.pool).end_pass();
        lock(&self.waited).1 += 1;
        let mut step = lock(&self.step);
        *step = Step { depth: step.depth, ..Step::default() };
        Ok(())
    }

    /// For a hook: keeps the error for the caller of the backward pass.
    pub fn kept(&self, result: Result<()>) -> Result<(), c10d_sys::Error> {
        result.map_err(|error| {
            let message = error.to_string();
            lock(&self.step).failure.get_or_insert(error);
            message.into()
        })
    }

    /// Runs a module's forward pass. Returns the error of a block inside it, if one has failed.
    pub fn run<T>(&self, forward: impl FnOnce() -> T) -> Result<T> {
        lock(&self.step).depth += 1;
        let outcome = catch_unwind(AssertUnwindSafe(forward));
        lock(&self.step).depth -= 1;
        let failure = || lock(&self.step).failure.take();
        outcome.map_err(|panic| failure().unwrap_or_else(|| resume_unwind(panic)))
    }

    /// Ends a failed forward pass. An enclosing block's pass returns the error; without one, the caller gets a panic.
    pub fn fail(&self, error: Error) -> ! {
        let message = error.to_string();
        if lock(&self.step).depth > 0 {
            lock(&self.step).failure = Some(error);
            resume_unwind(Box::new(message));
        }
        panic!("{message}")
    }

    fn reset(&self) {
        self.units().iter().for_each(|unit| unit.reset());
        let mut step = lock(&self.step);
        *step = Step { depth: step.depth, failure: step.failure.take(), ..Step::default() };
    }

    /// Resets all units, and returns why the last pass has failed.
    pub fn recover(&self) -> Option<Error> {
        self.reset();
        lock(&self.step).failure.take()
    }
}

/// Watches for the end of a backward pass, perhaps of several models. If it fails, autograd drops this uncalled.
struct Watch<U: Member> {
    schedule: Arc<Schedule<U>>,
    has_ended: AtomicBool,
}

impl<U: Member> Watch<U> {
    fn end(&self) -> Result<(), c10d_sys::Error> {
        let outcome = self.schedule.kept(self.schedule.finish_backward());
        self.has_ended.store(outcome.is_ok(), Ordering::Relaxed);
        outcome
    }
}

impl<U: Member> Drop for Watch<U> {
    fn drop(&mut self) {
        if !self.has_ended.load(Ordering::Relaxed) {
            self.schedule.reset();
        }
    }
}
