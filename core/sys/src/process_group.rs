//! Groups of ranks, and how they find each other.

use crate::arguments::{c_rank, c_texts, milliseconds, pointer, pointers};
use crate::error::{check, created, created_tensor, written};
use crate::{Result, Store, ffi, ffi::Progress, ffi::Text, owned::Owned};
use std::{ffi::CStr, sync::Arc, time::Duration};
use tch::{Device, Kind, Tensor};

/// How gloo reaches the other ranks.
#[derive(Debug, Clone)]
pub struct GlooOptions {
    /// Where it listens for them.
    pub address: GlooAddress,
    /// Whether ranks on one host exchange through shared memory. If one of the ranks cannot, all use sockets.
    pub shared_memory: bool,
    /// What error messages call this rank.
    pub name: usize,
    /// How long to wait for the other ranks in every operation.
    pub timeout: Duration,
    /// How long to wait for them here.
    pub join_timeout: Duration,
}

/// Where gloo listens for the other ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlooAddress {
    /// On network interfaces, named as in GLOO_SOCKET_IFNAME.
    Interfaces(Vec<String>),
    /// On the address to which a host name, or an address as text, resolves.
    Host(String),
}

/// A handle to a `c10d::ProcessGroup`. Clones share the group.
///
/// All ranks must start the same operations in the same order. Those that return
/// [`Work`](crate::Work) have only been started.
#[derive(Debug, Clone)]
pub struct ProcessGroup(Arc<Owned<ffi::ProcessGroup>>);

// SAFETY: the C++ object may be used from any thread; it locks around the start of each operation
// (serial_process_group.hpp).
unsafe impl Send for Owned<ffi::ProcessGroup> {}
// SAFETY: as above. Backends are added before the handle is shared.
unsafe impl Sync for Owned<ffi::ProcessGroup> {}

impl ProcessGroup {
    fn without_backend(store: &Store, rank: usize, size: usize) -> Result<Self> {
        let (rank, size) = (c_rank(rank), c_rank(size));
        let handle = created(|out| ffi::c10d_process_group_new(&store.0, rank, size, out));
        handle.map(|handle| ProcessGroup(Arc::new(handle)))
    }

    /// Connects to all other ranks and returns a group that moves tensors with gloo. All ranks must
    /// share `store`, and nothing else may use it.
    pub fn gloo(store: &Store, rank: usize, size: usize, options: &GlooOptions) -> Result<Self> {
        let (names, are_interfaces) = match &options.address {
            GlooAddress::Interfaces(names) => (c_texts(names)?, true),
            GlooAddress::Host(name) => (c_texts(&[name])?, false),
        };
        let names: Vec<_> = names.iter().map(|name| Text::new(name)).collect();
        let group = Self::without_backend(store, rank, size)?;
        check(ffi::c10d_process_group_add_gloo(
            group.pointer(),
            names.as_slice().into(),
            are_interfaces,
            options.shared_memory,
            c_rank(options.name),
            milliseconds(options.timeout),
            milliseconds(options.join_timeout),
        ))?;
        Ok(group)
    }

    /// Connects to all other ranks and returns a group that moves CUDA tensors with NCCL; this
    /// rank's are on one GPU. All ranks must share `store`, and nothing else may use it.
    #[cfg(feature = "cuda")]
    pub fn nccl(
        store: &Store,
        rank: usize,
        size: usize,
        device_index: usize,
        timeout: Duration,
    ) -> Result<ProcessGroup> {
        let group = Self::without_backend(store, rank, size)?;
        let (device_index, timeout) = (c_rank(device_index), milliseconds(timeout));
        check(ffi::c10d_process_group_add_nccl(group.pointer(), device_index, timeout))?;
        Ok(group)
    }

    /// Why the group does not exchange through shared memory; `None` if it does.
    pub fn no_shared_memory(&self) -> Option<String> {
        let reason = ffi::c10d_process_group_no_shared_memory(self.pointer());
        // SAFETY: the text lives as long as the group.
        let reason = (!reason.is_null()).then(|| unsafe { CStr::from_ptr(reason) });
        reason.map(|reason| reason.to_string_lossy().into_owned())
    }

    /// The first rank, from `first` on, whose connection has closed although an operation of gloo's
    /// that needs it began at least `age` ago and is not over.
    pub fn lost_peer(&self, first: usize, age: Duration) -> Result<Option<usize>> {
        let (group, first, age) = (self.pointer(), c_rank(first), milliseconds(age));
        let rank = written(|out| ffi::c10d_process_group_lost_peer(group, first, age, out))?;
        Ok(usize::try_from(rank).ok())
    }

    /// Makes all operations of gloo's fail that need this rank and are not over, whoever waits for
    /// them. Gloo itself goes on waiting until the group [fails](Self::fail).
    pub fn fail_operations_with(&self, rank: usize) -> Result<()> {
        check(ffi::c10d_process_group_fail_operations_with(self.pointer(), c_rank(rank)))
    }

    /// A tensor with undefined values. On the CPU it lies in shared memory, if the group exchanges
    /// through it, and nothing has to be copied.
    pub fn allocate_tensor(&self, size: &[i64], (kind, device): (Kind, Device)) -> Result<Tensor> {
        let like = Tensor::empty([0], (kind, device));
        created_tensor(|out| {
            ffi::c10d_allocate_tensor(self.pointer(), size.into(), pointer(&like), out)
        })
    }

    /// Checks that all ranks have the same number of parameters with the same shapes and strides.
    /// Only the ranks that differ from rank 0 get the error. Kinds are not compared. Blocks.
    pub fn verify_params(&self, parameters: &[Tensor]) -> Result<()> {
        check(ffi::c10d_verify_params(self.pointer(), pointers(parameters).list()))
    }

    /// How far NCCL's operations have come on the GPU. An error with gloo.
    pub fn progress(&self) -> Result<Progress> {
        written(|out| ffi::c10d_process_group_progress(self.pointer(), out))
    }

    /// Ends what NCCL waits for on the GPU, on which later work waits. The group cannot be used
    /// afterwards: its operations fail. `torch.distributed.distributed_c10d._abort_process_group`
    pub fn abort(&self) -> Result<()> {
        check(ffi::c10d_process_group_abort(self.pointer()))
    }

    /// Closes all connections of gloo's, so that every operation fails, here and on the other ranks,
    /// those to come as well. Does nothing to NCCL's.
    pub fn fail(&self) -> Result<()> {
        check(ffi::c10d_process_group_fail(self.pointer()))
    }

    /// Whether gloo carries out operations, so that the destructor would wait for them.
    pub fn is_busy(&self) -> Result<bool> {
        written(|out| ffi::c10d_process_group_is_busy(self.pointer(), out))
    }

    pub(crate) fn pointer(&self) -> &ffi::ProcessGroup {
        &self.0
    }
}

/// Calls `probe` whenever what the other ranks see of this one in shared memory has changed, so that
/// a test can end a process there.
#[doc(hidden)]
pub fn probe_shared_memory(probe: extern "C" fn()) {
    ffi::c10d_probe_shared_memory(probe);
}
