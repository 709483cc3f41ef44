//! The state of every rank's random generators, which dropout uses.

use crate::{Error, Result, distributed::ProcessGroup};
use c10d_sys::random::{rng_state, set_rng_state};
use std::fmt;
use tch::Tensor;
use tch_parallel_base::{named_tensors::NamedTensors, random::generators};

/// What happened to the random generators when a training was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "unless they are restored, the run does not go on to the same bits"]
pub enum Generators {
    /// Each rank continues with the numbers that it would have drawn next.
    Restored,
    /// It was saved by another number of ranks. All keep the program's seeds: as random as before, but not the same.
    OtherWorldSize {
        /// The number of ranks that saved it.
        saved: usize,
    },
    /// It was saved on another type of device. The CPU's generator is restored; a GPU keeps the program's seed.
    OtherDevice,
}

impl fmt::Display for Generators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = "the checkpoint has the random generators of another";
        match self {
            Generators::Restored => write!(f, "the random generators are restored"),
            Generators::OtherWorldSize { saved } => write!(f, "{others} world size, {saved}"),
            Generators::OtherDevice => write!(f, "{others} type of device"),
        }
    }
}

/// The states of all ranks, with their names in the file. A collective.
pub(super) fn gather(group: &ProcessGroup) -> Result<Vec<(String, Tensor)>> {
    let mut states = Vec::new();
    for cuda in generators(&[group.device()]) {
        let state = rng_state(cuda).map_err(Error::engine("get_rng_state"))?;
        let state = state.f_to(group.exchange_device())?;
        let all = group.all_gather(&state)?;
        states.extend(all.into_iter().enumerate().map(|(rank, state)| (name(rank, cuda), state)));
    }
    Ok(states)
}

/// Restores this rank's generators from what [`gather`] returned in a world of `saved` ranks.
pub(super) fn restore(
    group: &ProcessGroup,
    saved: usize,
    states: &NamedTensors,
) -> Result<Generators> {
    if saved != group.world_size() {
        return Ok(Generators::OtherWorldSize { saved });
    }
    let own = generators(&[group.device()]);
    let mut same_devices = states.len() == saved * own.len();
    for cuda in own {
        match states.get(&name(group.rank(), cuda)) {
            Some(state) => set_rng_state(cuda, state).map_err(Error::engine("set_rng_state"))?,
            None => same_devices = false,
        }
    }
    Ok(if same_devices { Generators::Restored } else { Generators::OtherDevice })
}

/// Without the index of the GPU: a rank may run on another one.
fn name(rank: usize, cuda: Option<usize>) -> String {
    format!("{rank}.{}", if cuda.is_some() { "cuda" } else { "cpu" })
}
