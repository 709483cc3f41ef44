//! The state of the random generators.

use crate::{Error, LogicalDevice, Result};
use c10d_sys::random::{rng_state, set_rng_state};
use tch::{Device, Tensor};

/// The state of the CPU's generator, and of that of a GPU.
#[derive(Debug)]
pub struct RandomState(Vec<(Option<usize>, Tensor)>);

impl RandomState {
    /// That of the generators for work on this device.
    pub fn of(device: Device) -> Result<Self> {
        let states = generators(device).into_iter().map(|it| Ok((it, rng_state(it)?)));
        let states = states.collect::<Result<_, _>>().map_err(Error::engine("get_rng_state"))?;
        Ok(RandomState(states))
    }

    /// Makes the generators draw what they have drawn since.
    pub fn restore(&self) -> Result<()> {
        self.0.iter().try_for_each(|(generator, state)| {
            set_rng_state(*generator, state).map_err(Error::engine("set_rng_state"))
        })
    }
}

/// Those for work on this device: the CPU's generator, and that of a GPU by its index.
pub fn generators(device: Device) -> Vec<Option<usize>> {
    match device {
        Device::Cuda(index) => vec![None, Some(index)],
        _ => vec![None],
    }
}

/// Restores the generators after building a copy: later draws must not depend on the number of devices or layers.
pub fn drawing_nothing<R>(device: LogicalDevice, build: impl FnOnce() -> R) -> Result<R> {
    let state = RandomState::of(device.into())?;
    let built = build();
    state.restore()?;
    Ok(built)
}
