//! The operations of a process group.

use crate::arguments::{c_rank, milliseconds, pointer, pointers};
use crate::{Error, ProcessGroup, Result, Work, error::check, error::created, ffi, owned::Owned};
use std::{ptr::null_mut, slice::from_ref, time::Duration};
use tch::Tensor;

/// How values of several ranks are combined: `dist.ReduceOp`, in the order of `c10d::ReduceOp::RedOpType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ReduceOp {
    /// The sum; of booleans, whether any is true. With Python ranks in the job, use [`Max`](Self::Max) for that.
    #[default]
    Sum = 0,
    /// The mean, of floating-point numbers only.
    Avg = 1,
    /// The product.
    Product = 2,
    /// The smallest.
    Min = 3,
    /// The largest.
    Max = 4,
    /// The bitwise and, of integers only.
    Band = 5,
    /// The bitwise or, of integers only.
    Bor = 6,
    /// The bitwise exclusive or, of integers only.
    Bxor = 7,
}

/// How an operation runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call {
    /// How long it waits for the other ranks; by default as long as the group.
    pub timeout: Option<Duration>,
    /// Whether it goes on while this thread does something else. Otherwise it is waited for at once,
    /// and may leave all the work to [`Work::wait`].
    pub is_async: bool,
}

impl From<Call> for ffi::Call {
    fn from(call: Call) -> ffi::Call {
        let timeout_ms = call.timeout.map_or(-1, milliseconds);
        let (is_async, op) = (call.is_async, ReduceOp::Sum as u8);
        ffi::Call { timeout_ms, is_async, root: 0, op, tag: 0, virtual_ranks: 0 }
    }
}

impl Call {
    fn rooted(self, root: usize) -> ffi::Call {
        ffi::Call { root: c_rank(root), ..self.into() }
    }

    fn reducing(self, op: ReduceOp) -> ffi::Call {
        ffi::Call { op: op as u8, ..self.into() }
    }
}

/// As numbered in c10d.h.
#[repr(u8)]
enum Operation {
    AllReduce,
    Broadcast,
    Reduce,
    AllGather,
    AllGatherIntoTensor,
    AllGatherParts,
    Gather,
    Scatter,
    ReduceScatter,
    ReduceScatterTensor,
    ReduceScatterParts,
    AddRows,
    AllToAll,
    Barrier,
    Send,
    Recv,
    RecvAny,
}

/// A message of a [batch](ProcessGroup::batch).
#[derive(Debug)]
pub struct Message<'a> {
    /// What is sent, or where to put what is received.
    pub tensor: &'a Tensor,
    /// The rank at the other end.
    pub peer: usize,
    /// Must be the same at both ends.
    pub tag: i32,
    /// Whether this rank sends it.
    pub is_send: bool,
}

/// Declares operations by the outputs, inputs and options that they start with.
macro_rules! operations {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) =
        $operation:ident($outputs:expr, $inputs:expr, $call:expr);)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, $($argument: $type),*) -> Result<Work> {
            self.start(Operation::$operation, $outputs, $inputs, $call)
        }
    )*};
}

/// Each of these has only been started when it returns. The tensors must be dense, and are exchanged in memory order.
/// The operation keeps their memory until it is over, but for [`storage::Memory::free`](crate::storage::Memory::free)
/// of a GPU's; a tensor that is resized meanwhile, or whose data is replaced, does not get the result.
impl ProcessGroup {
    operations! {
        /// Reduces `tensor` over all ranks, in place on every rank.
        fn all_reduce(tensor: &Tensor, op: ReduceOp, call: Call) =
            AllReduce(&[], from_ref(tensor), call.reducing(op));

        /// Copies rank `root`'s `tensor` into every other rank's.
        fn broadcast(tensor: &Tensor, root: usize, call: Call) =
            Broadcast(&[], from_ref(tensor), call.rooted(root));

        /// Reduces `tensor` over all ranks into rank `root`'s; the other ranks' are undefined afterwards.
        fn reduce(tensor: &Tensor, root: usize, op: ReduceOp, call: Call) =
            Reduce(&[], from_ref(tensor), ffi::Call { root: c_rank(root), ..call.reducing(op) });

        /// Copies rank r's `input` into `outputs[r]` on every rank.
        fn all_gather(outputs: &[Tensor], input: &Tensor, call: Call) =
            AllGather(outputs, from_ref(input), call.into());

        /// Copies rank r's `input` into part r of `output` on every rank.
        fn all_gather_into_tensor(output: &Tensor, input: &Tensor, call: Call) =
            AllGatherIntoTensor(from_ref(output), from_ref(input), call.into());

        /// Copies rank r's `input` into rank `root`'s `outputs[r]`; the other ranks have no outputs.
        fn gather(outputs: &[Tensor], input: &Tensor, root: usize, call: Call) =
            Gather(outputs, from_ref(input), call.rooted(root));

        /// Copies rank `root`'s `inputs[r]` into rank r's `output`; the other ranks have no inputs.
        fn scatter(output: &Tensor, inputs: &[Tensor], root: usize, call: Call) =
            Scatter(from_ref(output), inputs, call.rooted(root));

        /// Reduces all ranks' `inputs[r]` into rank r's `output`.
        fn reduce_scatter(output: &Tensor, inputs: &[Tensor], op: ReduceOp, call: Call) =
            ReduceScatter(from_ref(output), inputs, call.reducing(op));

        /// Reduces part r of all ranks' `input` into rank r's `output`.
        fn reduce_scatter_tensor(output: &Tensor, input: &Tensor, op: ReduceOp, call: Call) =
            ReduceScatterTensor(from_ref(output), from_ref(input), call.reducing(op));

        /// Like [`all_gather_into_tensor`](Self::all_gather_into_tensor), where rank r's values are those of
        /// all its `inputs`, one after the other, and `outputs[i]`, `[ranks, ..]`, gets all ranks' `inputs[i]`.
        /// Only [through shared memory](Self::no_shared_memory), for dense tensors on the CPU.
        fn all_gather_parts(outputs: &[Tensor], inputs: &[Tensor], call: Call) =
            AllGatherParts(as_many("all_gather_parts", outputs, inputs)?, inputs, call.into());

        /// Like [`reduce_scatter_tensor`](Self::reduce_scatter_tensor), where the values for rank r are part r
        /// of all `inputs`, `[ranks, ..]`, one after the other.
        /// Only [through shared memory](Self::no_shared_memory), for dense tensors on the CPU.
        fn reduce_scatter_parts(output: &Tensor, inputs: &[Tensor], op: ReduceOp, call: Call) =
            ReduceScatterParts(from_ref(output), inputs, call.reducing(op));

        /// Adds up the values of `virtual_ranks`, of which rank r of R has those from number `virtual_ranks * r / R` on, and
        /// puts the sum in the first row of everyone's `tensor`, `[rows, count]`. The order is that of a tree with the virtual
        /// ranks as its leaves: a branch of n leaves has the largest power of two below n on its left. A rank's rows are the
        /// sums of the maximal branches that are wholly its own, from left to right; further rows are ignored.
        /// Only [through shared memory](Self::no_shared_memory), for contiguous tensors on the CPU.
        fn add_rows(tensor: &Tensor, virtual_ranks: usize, call: Call) =
            AddRows(&[], from_ref(tensor), ffi::Call { virtual_ranks: c_rank(virtual_ranks), ..call.into() });

        /// Copies this rank's `inputs[r]` into rank r's output for this rank.
        fn all_to_all(outputs: &[Tensor], inputs: &[Tensor], call: Call) =
            AllToAll(as_many("all_to_all", outputs, inputs)?, inputs, call.into());

        /// Finishes when every rank has arrived.
        fn barrier(call: Call) = Barrier(&[], &[], call.into());

        /// Sends `tensor` to one rank, which must receive with the same tag.
        fn send(tensor: &Tensor, destination: usize, tag: i32) =
            Send(&[], from_ref(tensor), ffi::Call { tag, ..Call::default().rooted(destination) });

        /// Receives from one rank into `tensor`.
        fn recv(tensor: &Tensor, source: usize, tag: i32) =
            Recv(from_ref(tensor), &[], ffi::Call { tag, ..Call::default().rooted(source) });

        /// Receives into `tensor` from the rank that sends first; [`Work::source_rank`] then says which. Gloo only.
        fn recv_any(tensor: &Tensor, tag: i32) =
            RecvAny(from_ref(tensor), &[], ffi::Call { tag, ..Call::default().into() });
    }

    /// Copies part r of this rank's `input` into this rank's part of rank r's `output`. The parts
    /// have these numbers of rows; without splits, all have the same number.
    pub fn all_to_all_single(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: &[i64],
        input_splits: &[i64],
        call: Call,
    ) -> Result<Work> {
        let (group, output, input) = (self.pointer(), pointer(output), pointer(input));
        let (received, sent) = (output_splits.into(), input_splits.into());
        let handle = created(|out| {
            ffi::c10d_all_to_all_single(group, output, input, received, sent, call.into(), out)
        })?;
        Ok(Work(handle))
    }

    /// Starts several messages as one, and returns the work of each, in the same order.
    pub fn batch(&self, messages: &[Message<'_>]) -> Result<Vec<Work>> {
        let messages = messages.iter().map(|message| ffi::Message {
            tensor: pointer(message.tensor),
            peer: c_rank(message.peer),
            tag: message.tag,
            is_send: message.is_send,
        });
        let messages: Vec<_> = messages.collect();
        let mut works = vec![null_mut(); messages.len()];
        let (first, count) = (messages.as_ptr(), messages.len());
        // SAFETY: there is room for as many works as there are messages.
        check(unsafe { ffi::c10d_batch(self.pointer(), first, count, works.as_mut_ptr()) })?;
        // SAFETY: the call has made each and given up ownership of it.
        let handles = works.into_iter().map(|work| unsafe { Owned::new(work) });
        handles.map(|work| work.map(Work).ok_or_else(Error::no_handle)).collect()
    }

    /// A barrier that rank 0 watches: its error names the ranks that did not arrive in time. Gloo only. Blocks.
    pub fn monitored_barrier(&self, timeout: Duration, wait_all_ranks: bool) -> Result<()> {
        check(ffi::c10d_monitored_barrier(self.pointer(), milliseconds(timeout), wait_all_ranks))
    }

    /// Copies all of rank `root`'s `tensors` into every other rank's, packed into buffers of `size` bytes. Blocks.
    pub fn broadcast_coalesced(&self, tensors: &[Tensor], size: usize, root: usize) -> Result<()> {
        let (group, tensors, root) = (self.pointer(), pointers(tensors), c_rank(root));
        check(ffi::c10d_broadcast_coalesced(group, tensors.list(), size, root))
    }

    fn start(
        &self,
        operation: Operation,
        outputs: &[Tensor],
        inputs: &[Tensor],
        call: ffi::Call,
    ) -> Result<Work> {
        let (number, outputs, inputs) = (operation as u8, pointers(outputs), pointers(inputs));
        let handle = created(|out| {
            ffi::c10d_start(self.pointer(), number, outputs.list(), inputs.list(), call, out)
        })?;
        Ok(Work(handle))
    }
}

/// The outputs, which must be as many as the inputs.
fn as_many<'a>(name: &str, outputs: &'a [Tensor], inputs: &[Tensor]) -> Result<&'a [Tensor]> {
    let refusal = || Error::misuse(format!("{name} takes as many outputs as inputs"));
    (outputs.len() == inputs.len()).then_some(outputs).ok_or_else(refusal)
}

#[cfg(test)]
mod tests;
