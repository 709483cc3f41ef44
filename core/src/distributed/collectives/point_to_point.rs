//! Tensors from one rank to another.

use super::arguments::{Output, plain};
use super::pending::Pending;
use crate::{Error, Result, distributed::group::ProcessGroup};
use c10d_sys::{Message, Work};
use tch::Tensor;

/// A message of [`ProcessGroup::batch_isend_irecv`]. `dist.P2POp`.
#[derive(Debug)]
#[doc(alias = "P2POp")]
pub struct P2pOp {
    tensor: Tensor,
    is_send: bool,
    peer: usize,
    tag: Option<i32>,
}

impl P2pOp {
    /// Sends `tensor` to rank `dst`.
    pub fn isend(tensor: Tensor, dst: usize) -> Self {
        P2pOp { tensor, is_send: true, peer: dst, tag: None }
    }

    /// Receives from rank `src` into `tensor`, which has the shape and kind of the tensor sent.
    pub fn irecv(tensor: Tensor, src: usize) -> Self {
        P2pOp { tensor, is_send: false, peer: src, tag: None }
    }

    /// The same message, with a [tag](ProcessGroup::with_tag) of its own in place of the group's.
    #[must_use]
    pub fn with_tag(self, tag: i32) -> Self {
        P2pOp { tag: Some(tag), ..self }
    }
}

impl ProcessGroup {
    /// Sends `tensor` to rank `dst`, which must [`recv`](Self::recv) with the same [tag](Self::with_tag). `dist.send`.
    ///
    /// If `dst` ends, this usually fails at once. But if `dst` ends right after it has asked for
    /// the tensor, gloo does not notice, and this fails only after the timeout.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors), and [`Error::Argument`] if `dst` is this rank itself.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        self.at_once().isend(tensor.shallow_clone(), dst)?.wait().map(drop)
    }

    /// Receives a tensor from rank `src` into `tensor`, of the same shape and kind. `dist.recv`.
    ///
    /// If `tensor` is smaller than what is sent, the process ends with SIGABRT, in Python too: gloo notices it on a
    /// thread of its own, where nothing can catch the failure. A message does not say how large it is before it is
    /// received, and a rank that runs Python would take a size that was sent first for the message itself.
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.at_once().irecv(tensor.shallow_clone(), src)?.wait().map(drop)
    }

    /// [`recv`](Self::recv) from any rank, which it returns. Gloo only. `dist.recv(tensor, src=None)`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and [`Error::Argument`] with NCCL.
    pub fn recv_any(&self, tensor: &mut Tensor) -> Result<usize> {
        self.at_once().irecv_any(tensor.shallow_clone())?.wait().map(|(_, src)| src)
    }

    /// [`send`](Self::send) that returns before it has finished. `dist.isend`.
    pub fn isend(&self, tensor: Tensor, dst: usize) -> Result<Pending<Tensor>> {
        let name = if self.is_async { "isend" } else { "send" };
        self.check_message(&tensor, "dst", dst)?;
        let work = self.engine().send(&plain(&tensor)?, dst, self.tag);
        self.pending(name, work, |_| Ok(tensor)).map(Pending::limited)
    }

    /// [`recv`](Self::recv) that returns before it has finished. `dist.irecv`.
    pub fn irecv(&self, tensor: Tensor, src: usize) -> Result<Pending<Tensor>> {
        let name = if self.is_async { "irecv" } else { "recv" };
        self.check_message(&tensor, "src", src)?;
        let output = Output::new(&tensor)?;
        let work = self.engine().recv(&output.tensor, src, self.tag);
        self.pending(name, work, |_| output.finish().map(|()| tensor)).map(Pending::limited)
    }

    /// [`recv_any`](Self::recv_any) that returns before it has finished. `dist.irecv(tensor)`.
    pub fn irecv_any(&self, tensor: Tensor) -> Result<Pending<(Tensor, usize)>> {
        let name = if self.is_async { "irecv_any" } else { "recv_any" };
        self.refuse_nccl(name)?;
        self.check_sendable(&tensor)?;
        let output = Output::new(&tensor)?;
        let work = self.engine().recv_any(&output.tensor, self.tag);
        let pending = self.pending(name, work, move |work| {
            let source = work.source_rank().map_err(Error::engine("recv_any"))?;
            output.finish().map(|()| (tensor, source))
        });
        pending.map(Pending::limited)
    }

    /// Starts several sends and receives at once, so that no order among them can make two ranks
    /// wait for each other. Returns them in the same order. `dist.batch_isend_irecv`.
    ///
    /// Messages between the same two ranks arrive in the order in which they were sent.
    ///
    /// ```
    /// use tch::Tensor;
    /// use tch_parallel::distributed::{P2pOp, Pending, ProcessGroup};
    ///
    /// /// Passes a tensor on to the next rank, and returns the previous rank's.
    /// fn shift(group: &ProcessGroup, own: Tensor) -> tch_parallel::Result<Tensor> {
    ///     let (rank, ranks) = (group.rank(), group.world_size());
    ///     let from_previous = own.zeros_like();
    ///     let pending = group.batch_isend_irecv(vec![
    ///         P2pOp::isend(own, (rank + 1) % ranks),
    ///         P2pOp::irecv(from_previous, (rank + ranks - 1) % ranks),
    ///     ])?;
    ///     let mut both = pending.into_iter().map(Pending::wait).collect::<Result<Vec<_>, _>>()?;
    ///     Ok(both.swap_remove(1))
    /// }
    /// ```
    pub fn batch_isend_irecv(&self, operations: Vec<P2pOp>) -> Result<Vec<Pending<Tensor>>> {
        const OPERATION: &str = "batch_isend_irecv";
        // What is exchanged, and where it is written, if it is received.
        let exchanged = operations.iter().map(|operation| {
            let P2pOp { tensor, is_send, peer, tag } = operation;
            let group = tag.map_or_else(|| self.clone(), |tag| self.with_tag(tag));
            group.check_message(tensor, if *is_send { "dst" } else { "src" }, *peer)?;
            if *is_send {
                return Ok((plain(tensor)?, None, group.tag));
            }
            let output = Output::new(tensor)?;
            Ok((output.tensor.shallow_clone(), Some(output), group.tag))
        });
        let exchanged: Vec<_> = exchanged.collect::<Result<_>>()?;
        let messages = operations.iter().zip(&exchanged).map(|(operation, (tensor, _, tag))| {
            let P2pOp { peer, is_send, .. } = *operation;
            Message { tensor, peer, tag: *tag, is_send }
        });
        let messages: Vec<_> = messages.collect();
        let works = self.engine().batch(&messages);
        let works = works.map_err(|error| self.failed(OPERATION, &error))?;
        let all = works.into_iter().zip(operations).zip(exchanged);
        let pending = all.map(|((work, operation), (_, output, _))| {
            let finish =
                |_: &Work| output.map_or(Ok(()), Output::finish).map(|()| operation.tensor);
            self.pending(OPERATION, Ok(work), finish).map(Pending::limited)
        });
        pending.collect()
    }
}
