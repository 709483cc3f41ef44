//! The collectives of tensors.

use super::arguments::{Output, handles, inputs, plain, received};
use super::arguments::{check_length, check_list, check_reduction};
use super::pending::Pending;
use crate::{Error, Result, check, distributed::group::ProcessGroup};
use c10d_sys::ReduceOp;
use tch::{Tensor, no_grad};

impl ProcessGroup {
    /// Reduces `tensor` over all ranks, element by element, in place on every rank. Its shape can
    /// be any, but must be the same on all ranks. `dist.all_reduce`.
    pub fn all_reduce(&self, tensor: &mut Tensor, op: ReduceOp) -> Result<()> {
        self.at_once().all_reduce_async(tensor.shallow_clone(), op)?.wait().map(drop)
    }

    /// [`all_reduce`](Self::all_reduce) that returns before it has finished. `dist.all_reduce(tensor, async_op=True)`.
    #[doc(alias = "async_op")]
    pub fn all_reduce_async(&self, tensor: Tensor, op: ReduceOp) -> Result<Pending<Tensor>> {
        check_reduction(&tensor, op)?;
        let output = Output::new(&tensor)?;
        let work = self.engine().all_reduce(&output.tensor, op, self.call());
        self.pending("all_reduce", work, |_| output.finish().map(|()| tensor))
    }

    /// [`all_reduce`](Self::all_reduce) of several tensors as one exchange: all of one kind, where complex numbers
    /// count as pairs of real ones. `dist.all_reduce_coalesced`.
    ///
    /// # Errors
    /// Those of [every collective](Self#errors), and [`Error::Argument`] for no tensors, or tensors of different kinds.
    pub fn all_reduce_coalesced(&self, tensors: &mut [Tensor], op: ReduceOp) -> Result<()> {
        self.at_once().all_reduce_coalesced_async(handles(tensors), op)?.wait().map(drop)
    }

    /// [`all_reduce_coalesced`](Self::all_reduce_coalesced) that returns before it has finished.
    pub fn all_reduce_coalesced_async(
        &self,
        tensors: Vec<Tensor>,
        op: ReduceOp,
    ) -> Result<Pending<Vec<Tensor>>> {
        tensors.iter().try_for_each(|tensor| check_reduction(tensor, op))?;
        let outputs = tensors.iter().map(Output::new).collect::<Result<Vec<_>>>()?;
        let parts: Vec<_> = outputs.iter().map(|it| it.tensor.shallow_clone()).collect();
        let flat = flatten_alike(&parts)?;
        let work = self.engine().all_reduce(&flat, op, self.call());
        self.pending("all_reduce_coalesced", work, move |_| {
            copy_back(&parts, &flat)?;
            outputs.into_iter().try_for_each(Output::finish).map(|()| tensors)
        })
    }

    /// Copies rank `src`'s `tensor` into every other rank's, of the same shape and kind. `dist.broadcast`.
    pub fn broadcast(&self, tensor: &mut Tensor, src: usize) -> Result<()> {
        self.at_once().broadcast_async(tensor.shallow_clone(), src)?.wait().map(drop)
    }

    /// [`broadcast`](Self::broadcast) that returns before it has finished.
    pub fn broadcast_async(&self, tensor: Tensor, src: usize) -> Result<Pending<Tensor>> {
        self.check_rank("src", src)?;
        let output = Output::new(&tensor)?;
        let work = self.engine().broadcast(&output.tensor, src, self.call());
        self.pending("broadcast", work, |_| output.finish().map(|()| tensor))
    }

    /// Reduces `tensor` over all ranks into rank `dst`'s. The others' are undefined afterwards. `dist.reduce`.
    pub fn reduce(&self, tensor: &mut Tensor, dst: usize, op: ReduceOp) -> Result<()> {
        self.at_once().reduce_async(tensor.shallow_clone(), dst, op)?.wait().map(drop)
    }

    /// [`reduce`](Self::reduce) that returns before it has finished.
    pub fn reduce_async(
        &self,
        tensor: Tensor,
        dst: usize,
        op: ReduceOp,
    ) -> Result<Pending<Tensor>> {
        self.check_rank("dst", dst)?;
        check_reduction(&tensor, op)?;
        let output = Output::new(&tensor)?;
        let work = self.engine().reduce(&output.tensor, dst, op, self.call());
        self.pending("reduce", work, |_| output.finish().map(|()| tensor))
    }

    /// Reduces part r of each `input`, along its first dimension, into rank r's `output`. `dist.reduce_scatter_tensor`.
    ///
    /// `input` is `[ranks * N, ..]` or `[ranks, N, ..]` for an `output` of `[N, ..]`.
    #[doc(alias = "reduce_scatter_single")]
    pub fn reduce_scatter_tensor(
        &self,
        output: &mut Tensor,
        input: &Tensor,
        op: ReduceOp,
    ) -> Result<()> {
        let (output, input) = (output.shallow_clone(), input.shallow_clone());
        self.at_once().reduce_scatter_tensor_async(output, input, op)?.wait().map(drop)
    }

    /// [`reduce_scatter_tensor`](Self::reduce_scatter_tensor) that returns before it has finished.
    pub fn reduce_scatter_tensor_async(
        &self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
    ) -> Result<Pending<Tensor>> {
        check_reduction(&input, op)?;
        self.check_parts("input", &input, "output", &output)?;
        let written = Output::new(&output)?;
        let part = written.tensor.f_atleast_1d()?;
        let whole = self.in_parts(&plain(&input)?, &part)?;
        let work = self.engine().reduce_scatter_tensor(&part, &whole, op, self.call());
        self.pending("reduce_scatter_tensor", work, |_| written.finish().map(|()| output))
    }

    /// Reduces all ranks' `input_list[r]` for rank r, which gets the result. `dist.reduce_scatter`.
    pub fn reduce_scatter(&self, input_list: &[Tensor], op: ReduceOp) -> Result<Tensor> {
        self.at_once().reduce_scatter_async(handles(input_list), op)?.wait()
    }

    /// [`reduce_scatter`](Self::reduce_scatter) that returns before it has finished.
    pub fn reduce_scatter_async(
        &self,
        input_list: Vec<Tensor>,
        op: ReduceOp,
    ) -> Result<Pending<Tensor>> {
        check_length("input_list", input_list.len(), self.world_size())?;
        let own = &input_list[self.rank()];
        check_list("input_list", &input_list, own)?;
        check_reduction(own, op)?;
        let (list, kind) = (inputs(&input_list)?, own.f_kind()?);
        let output = list[self.rank()].f_empty_like()?;
        let work = self.engine().reduce_scatter(&output, &list, op, self.call());
        self.pending("reduce_scatter", work, move |_| received(output, kind))
    }

    /// Returns when every rank has arrived. `dist.barrier`.
    pub fn barrier(&self) -> Result<()> {
        self.at_once().barrier_async()?.wait()
    }

    /// [`barrier`](Self::barrier) that returns at once; its [`Pending::wait`] returns when every rank has arrived.
    pub fn barrier_async(&self) -> Result<Pending<()>> {
        let work = self.engine().barrier(self.call());
        self.on_host().pending("barrier", work, |_| Ok(()))
    }

    /// A [`barrier`](Self::barrier) whose error, on rank 0, names every rank that did not arrive within this handle's
    /// timeout ([`with_timeout`](Self::with_timeout)); the first, without `wait_all_ranks`. `dist.monitored_barrier`.
    ///
    /// # Errors
    /// [`Error::Collective`] if a rank does not arrive in time, and [`Error::Argument`] with NCCL.
    pub fn monitored_barrier(&self, wait_all_ranks: bool) -> Result<()> {
        const OPERATION: &str = "monitored_barrier";
        self.refuse_nccl(OPERATION)?;
        let met = self.engine().monitored_barrier(self.timeout(), wait_all_ranks);
        met.map_err(|error| self.failed(OPERATION, &error))
    }

    /// Copies rank `src`'s tensors into all others', through buffers of `buffer_bytes`. `dist._broadcast_coalesced`.
    pub(crate) fn broadcast_coalesced(
        &self,
        operation: &'static str,
        tensors: &[Tensor],
        buffer_bytes: usize,
        src: usize,
    ) -> Result<()> {
        let sent = self.engine().broadcast_coalesced(tensors, buffer_bytes, src);
        sent.map_err(|error| self.failed(operation, &error))
    }

    /// Refuses a `whole` without one part of the shape and kind of `part` per rank.
    pub(crate) fn check_parts(
        &self,
        what: &str,
        whole: &Tensor,
        part_name: &str,
        part: &Tensor,
    ) -> Result<()> {
        let (ranks, size) = (self.world_size() as i64, part.size());
        let (found, kind) = (whole.f_kind()?, part.f_kind()?);
        let stacked = [&[ranks], &size[..]].concat();
        // A number counts as one row.
        let rows = size.first().copied().unwrap_or(1);
        let joined = [&[ranks * rows], size.get(1..).unwrap_or_default()].concat();
        if found == kind && [stacked, joined].contains(&whole.size()) {
            return Ok(());
        }
        let part = format!("of shape {size:?} and kind {kind:?}");
        let expected = format!("{ranks} times the {part_name}, which is {part}");
        let found = format!("of shape {:?} and kind {found:?}", whole.size());
        Err(Error::argument(what, found, expected))
    }

    /// `whole` as `[ranks * N, ..]` for parts of `[N, ..]`.
    pub(crate) fn in_parts(&self, whole: &Tensor, part: &Tensor) -> Result<Tensor> {
        let mut size = part.size();
        size[0] *= self.world_size() as i64;
        Ok(whole.f_view(size.as_slice())?)
    }
}

/// Tensors of one kind as a row.
pub(crate) fn flatten(tensors: &[Tensor]) -> Result<Tensor> {
    let rows = tensors.iter().map(|tensor| no_grad(|| tensor.f_reshape([-1])));
    Ok(Tensor::f_cat(&rows.collect::<Result<Vec<_>, _>>()?, 0)?)
}

/// The same, but refuses an empty list and tensors of different kinds.
pub(super) fn flatten_alike(tensors: &[Tensor]) -> Result<Tensor> {
    let kinds = tensors.iter().map(Tensor::f_kind).collect::<Result<Vec<_>, _>>()?;
    let are_alike = !kinds.is_empty() && kinds.windows(2).all(|pair| pair[0] == pair[1]);
    check(are_alike, "tensors", format_args!("of {kinds:?}"), "one or more, of one kind")?;
    flatten(tensors)
}

/// The parts of such a row, with the tensors' shapes, kinds and devices.
pub(crate) fn parts_like(tensors: &[Tensor], flat: &Tensor) -> Result<Vec<Tensor>> {
    let lengths: Vec<_> = tensors.iter().map(|tensor| tensor.numel() as i64).collect();
    let parts = flat.f_split_with_sizes(lengths, 0)?;
    let like = |(part, tensor): (&Tensor, &Tensor)| {
        let part = part.f_view_as(tensor)?.f_to_kind(tensor.f_kind()?)?;
        Ok(part.f_to(tensor.device())?)
    };
    parts.iter().zip(tensors).map(like).collect()
}

/// Copies the parts of such a row to the tensors.
pub(crate) fn copy_back(tensors: &[Tensor], flat: &Tensor) -> Result<()> {
    copy_each(tensors, &parts_like(tensors, flat)?)
}

/// Copies each tensor of `from` to the one in its place in `to`.
pub(crate) fn copy_each(to: &[Tensor], from: &[Tensor]) -> Result<()> {
    let mut pairs = to.iter().zip(from);
    no_grad(|| pairs.try_for_each(|(to, from)| Ok(to.shallow_clone().f_copy_(from)?)))
}
