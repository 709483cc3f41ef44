//! What one rank sends to all others: its buffers, or its whole model.

use super::buffer_comm_hook::BufferCommHookLocation as Location;
use super::ddp::{BROADCAST_BUFFER_BYTES, DistributedDataParallel};
use crate::Result;
use tch::{Tensor, no_grad};

impl<M> DistributedDataParallel<M> {
    /// Copies rank 0's buffers to every rank, unless the options disable it or have another hook. A collective.
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
        self.finish_buffers()?;
        self.sync_module_buffers(0)?;
        self.finish_buffers()
    }

    /// Synchronizes buffers if this is where to do it. In a join, all ranks must know whether each has inputs.
    pub(crate) fn sync_buffers_at(&self, place: Location, in_join: Option<bool>) -> Result<()> {
        let hook = self.buffer_comm_hook.as_ref();
        let own = hook.map_or(Location::PreForward, |hook| hook.borrow().location);
        let may_sync = self.forward_sync_buffers && self.sync_buffers.get();
        if place != own || !may_sync || self.buffers.is_empty() {
            return Ok(());
        }
        // Rank 0 may be out of inputs, and its buffers stale.
        let source = in_join.map_or(Ok(0), |has_inputs| self.common_rank(has_inputs))?;
        self.sync_module_buffers(source)?;
        if place == Location::PreForward { self.finish_buffers() } else { Ok(()) }
    }

    fn sync_module_buffers(&self, source: usize) -> Result<()> {
        // A graph that has saved a buffer, as batch normalization does, must not notice the change.
        let buffers = self.buffers.iter().map(|(name, it)| Ok((name.clone(), it.f_data()?)));
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        let Some(hook) = &self.buffer_comm_hook else {
            let buffers: Vec<_> = buffers.into_iter().map(|(_, buffer)| buffer).collect();
            return self.broadcast("broadcast of buffers", &buffers, source);
        };
        let pending = no_grad(|| (hook.borrow_mut().hook)(&self.group, buffers));
        self.pending_buffers.replace(self.group.or_report_first(pending)?);
        Ok(())
    }

    /// Waits for what a hook has started.
    pub(crate) fn finish_buffers(&self) -> Result<()> {
        self.pending_buffers.take().into_iter().try_for_each(|pending| pending.wait().map(drop))
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
