//! What one rank sends to all others: its buffers, or its whole model.

use super::ddp::{BROADCAST_BUFFER_BYTES, DistributedDataParallel};
use crate::Result;
use tch::{Tensor, no_grad};

impl<M> DistributedDataParallel<M> {
    /// Copies rank 0's buffers to every rank, unless the options disable it. A collective.
    ///
    /// Call this before evaluating the module on its own. Since the last forward pass, each rank has updated its
    /// running statistics from its own batch, so evaluation would differ between ranks. In Python, the first forward
    /// pass in evaluation mode does this. `model._sync_buffers()`
    ///
    /// # Errors
    /// [`Error::Collective`](crate::Error::Collective) if a rank has died or did not arrive within the timeout.
    pub fn sync_buffers(&self) -> Result<()> {
        self.group.refuse_in_join("sync_buffers")?;
        if self.buffers.is_empty() {
            return Ok(());
        }
        self.broadcast_buffers(0)
    }

    /// Whether the next forward pass starts with a broadcast of buffers.
    pub(crate) fn syncs_buffers(&self) -> bool {
        self.sync_buffers.get() && !self.buffers.is_empty()
    }

    pub(crate) fn broadcast_buffers(&self, source: usize) -> Result<()> {
        self.broadcast("broadcast of buffers", &self.buffers, source)
    }

    /// Copies all parameters and buffers of one rank to every rank. `_sync_module_states`
    pub(crate) fn broadcast_state(&self, source: usize) -> Result<()> {
        self.broadcast("broadcast of the model", &self.state, source)
    }

    fn broadcast(&self, operation: &'static str, tensors: &[Tensor], source: usize) -> Result<()> {
        let bytes = BROADCAST_BUFFER_BYTES;
        no_grad(|| self.group.broadcast_coalesced(operation, tensors, bytes, source))
    }
}
