//! Building without drawing.

use crate::{Error, LogicalDevice, Result};
use c10d_sys::random::{rng_state, set_rng_state};

/// Restores the random generators after building what gets a copy of other weights: later draws must
/// not depend on the number of devices or layers.
pub fn drawing_nothing<R>(device: LogicalDevice, build: impl FnOnce() -> R) -> Result<R> {
    let generators = match device {
        LogicalDevice::Cpu(_) => vec![None],
        LogicalDevice::Cuda(index) => vec![None, Some(index)],
    };
    let states = generators
        .into_iter()
        .map(|generator| Ok((generator, rng_state(generator)?)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Error::engine("get_rng_state"))?;
    let built = build();
    for (generator, state) in &states {
        set_rng_state(*generator, state).map_err(Error::engine("set_rng_state"))?;
    }
    Ok(built)
}
