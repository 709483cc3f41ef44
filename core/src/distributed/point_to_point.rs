//! Tensors from one rank to another.

use super::pending::Pending;
use super::process_group::ProcessGroup;
use crate::Result;
use c10d_sys::Work;
use tch::Tensor;

impl ProcessGroup {
    /// Sends `tensor` to rank `dst`, which must call [`recv`](Self::recv). `dist.send`.
    ///
    /// If `dst` ends, this usually fails at once. But if `dst` ends right after it has asked for
    /// the tensor, gloo does not notice, and this fails only after the group's timeout.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors), and
    /// [`Error::Argument`](crate::Error::Argument) if `dst` is this rank itself.
    pub fn send(&self, tensor: &Tensor, dst: usize) -> Result<()> {
        self.check_peer("dst", dst)?;
        self.check_message(tensor)?;
        self.run("send", self.engine().send(tensor, dst, 0).and_then(Work::wait))
    }

    /// Receives a tensor from rank `src` into `tensor`, which must have the shape and kind of the
    /// tensor sent. `dist.recv`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn recv(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.check_peer("src", src)?;
        self.check_message(tensor)?;
        self.run("recv", self.engine().recv(tensor, src, 0).and_then(Work::wait))
    }

    /// [`send`](Self::send) that returns before it has finished. `dist.isend`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send); later failures are returned by [`Pending::wait`].
    pub fn isend(&self, tensor: Tensor, dst: usize) -> Result<Pending<Tensor>> {
        self.check_peer("dst", dst)?;
        self.check_message(&tensor)?;
        let work = self.engine().send(&tensor, dst, 0);
        self.pending("isend", tensor, work)
    }

    /// [`recv`](Self::recv) that returns before it has finished. `dist.irecv`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send); later failures are returned by [`Pending::wait`].
    pub fn irecv(&self, tensor: Tensor, src: usize) -> Result<Pending<Tensor>> {
        self.check_peer("src", src)?;
        self.check_message(&tensor)?;
        let work = self.engine().recv(&tensor, src, 0);
        self.pending("irecv", tensor, work)
    }
}
