//! How tensors travel between the ranks of a group.

use super::device::Backend;
use super::process_group::{Inner, ProcessGroup};
use crate::{Error, Result};
use std::{env, fmt};
use tch::{Kind, Tensor};

/// Set to `0`, it switches shared memory off.
const SWITCH: &str = "TCH_PARALLEL_SHARED_MEMORY";

/// How tensors travel between the ranks of a group; see [`ProcessGroup::transport`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Gloo, with shared memory for `all_reduce`, `broadcast` and `barrier` of tensors on the CPU.
    SharedMemory,
    /// Gloo's sockets.
    Sockets {
        /// Why the ranks do not use shared memory.
        reason: String,
    },
    /// NCCL, which chooses for itself.
    Nccl,
}

impl ProcessGroup {
    /// How tensors travel between the ranks of this group.
    ///
    /// If all ranks of a group with the backend gloo are processes on one host, `all_reduce`,
    /// `broadcast` and `barrier` of tensors on the CPU go through shared memory, which is several
    /// times as fast as sockets. So do the gradients of
    /// [`DistributedDataParallel`](super::DistributedDataParallel). The results equal gloo's to
    /// the last bit. If one of the ranks is on another host or in another container, or runs
    /// Python, all use sockets. Set `TCH_PARALLEL_SHARED_MEMORY=0`, on one rank or on all, to switch
    /// shared memory off.
    ///
    /// ```
    /// use tch_parallel::distributed::{ProcessGroup, Transport};
    ///
    /// let group = ProcessGroup::from_env()?;
    /// if let Transport::Sockets { reason } = group.transport() {
    ///     println!("no shared memory: {reason}");
    /// }
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    pub fn transport(&self) -> Transport {
        self.inner.transport()
    }

    /// A tensor for collectives of this group, on its [`exchange_device`](Self::exchange_device) and
    /// with undefined values. With [`Transport::SharedMemory`] it lies in memory that all ranks can
    /// read and write, so that `all_reduce` and `broadcast` copy nothing.
    /// `Backend.allocate_tensor`.
    ///
    /// The buckets of [`DistributedDataParallel`](super::DistributedDataParallel) are allocated there
    /// anyway.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a negative size, or if there is not enough memory.
    pub fn allocate_tensor(&self, size: &[i64], kind: Kind) -> Result<Tensor> {
        let allocated = self.engine().allocate_tensor(size, (kind, self.exchange_device()));
        allocated.map_err(Error::engine("allocate_tensor"))
    }
}

impl Inner {
    pub(super) fn transport(&self) -> Transport {
        match (self.place.backend, self.engine().no_shared_memory()) {
            (Backend::Nccl, _) => Transport::Nccl,
            (Backend::Gloo, None) => Transport::SharedMemory,
            (Backend::Gloo, Some(reason)) => Transport::Sockets { reason },
        }
    }
}

/// Whether the environment allows shared memory.
pub(super) fn shared_memory_is_allowed() -> Result<bool> {
    match env::var(SWITCH).as_deref() {
        Ok("0") => Ok(false),
        Err(_) | Ok("" | "1") => Ok(true),
        Ok(other) => Err(Error::Environment {
            variable: SWITCH.into(),
            found: format!("is {other:?}"),
            expected: "0 for sockets only, or 1".into(),
        }),
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
