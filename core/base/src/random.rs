//! The state of the random generators.

use crate::{Error, Result};
use c10d_sys::random::{rng_state, set_rng_state};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{cell::Cell, collections::BTreeSet, iter::once};
use tch::{Device, Tensor};

thread_local! {
    /// Whether this thread runs a replica while others draw from the same generator.
    pub static SHARES_GENERATOR: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread computes in turns with others, so that none may wait for what another one holds.
    pub static TAKES_TURNS: Cell<bool> = const { Cell::new(false) };
}

/// The state of the CPU's generator, and of that of a GPU.
#[derive(Debug)]
pub struct RandomState(Vec<(Option<usize>, Tensor)>);

impl RandomState {
    /// That of the generators for work on these devices.
    pub fn of(devices: &[Device]) -> Result<Self> {
        let states = generators(devices).into_iter().map(|it| Ok((it, rng_state(it)?)));
        let states = states.collect::<Result<_, _>>().map_err(Error::engine("get_rng_state"))?;
        Ok(RandomState(states))
    }

    /// Whether each generator has drawn nothing since `start`, or is where it was at `end`.
    pub fn is_at(&self, start: &Self, end: &Self) -> bool {
        let mut all = self.0.iter().zip(&start.0).zip(&end.0);
        all.all(|((own, start), end)| own.1 == start.1 || own.1 == end.1)
    }

    /// Makes the generators draw what they have drawn since.
    pub fn restore(&self) -> Result<()> {
        self.0.iter().try_for_each(|(generator, state)| {
            set_rng_state(*generator, state).map_err(Error::engine("set_rng_state"))
        })
    }
}

/// Those for work on these devices: the CPU's generator, and that of each GPU by its index.
pub fn generators(devices: &[Device]) -> BTreeSet<Option<usize>> {
    let gpu = |device: &Device| if let Device::Cuda(index) = device { Some(*index) } else { None };
    once(None).chain(devices.iter().map(gpu)).collect()
}

/// Restores the generators after building a copy: later draws must not depend on the number of devices or layers.
pub fn drawing_nothing<R>(devices: &[Device], build: impl FnOnce() -> R) -> Result<R> {
    let state = RandomState::of(devices)?;
    let built = catch_unwind(AssertUnwindSafe(build));
    state.restore()?;
    Ok(built.unwrap_or_else(|panic| resume_unwind(panic)))
}
