//! How tensors travel between the ranks of a group.

use super::{device::Backend, env::wrong};
use crate::Result;
use std::{env, fmt};

/// Set to `0`, it switches shared memory off.
const SWITCH: &str = "TCH_PARALLEL_SHARED_MEMORY";

/// How tensors travel between the ranks of a group; see [`transport`](crate::distributed::ProcessGroup::transport).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Gloo, with shared memory for the collectives of dense tensors on the CPU, but for bitwise reductions, and for
    /// `all_to_all_single` with split sizes, since no rank knows the others'.
    SharedMemory,
    /// Gloo's sockets.
    Sockets {
        /// Why the ranks do not use shared memory.
        reason: String,
    },
    /// NCCL, which chooses for itself.
    Nccl,
}

impl Transport {
    pub(crate) fn of(backend: Backend, engine: &c10d_sys::ProcessGroup) -> Self {
        match (backend, engine.no_shared_memory()) {
            (Backend::Nccl, _) => Transport::Nccl,
            (Backend::Gloo, None) => Transport::SharedMemory,
            (Backend::Gloo, Some(reason)) => Transport::Sockets { reason },
        }
    }
}

pub(crate) fn shared_memory_is_allowed() -> Result<bool> {
    match env::var(SWITCH).as_deref() {
        Ok("0") => Ok(false),
        Err(_) | Ok("" | "1") => Ok(true),
        Ok(other) => Err(wrong(SWITCH, format!("is {other:?}"), "0 for sockets only, or 1")),
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::SharedMemory => f.write_str("shared memory"),
            Transport::Sockets { reason } => write!(f, "sockets ({reason})"),
            Transport::Nccl => f.write_str("NCCL"),
        }
    }
}
