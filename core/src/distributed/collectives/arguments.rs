//! What collectives refuse before anything is exchanged, and what they exchange for a tensor.

use crate::distributed::group::{Backend, ProcessGroup};
use crate::{Error, Result, check};
use c10d_sys::ReduceOp;
use c10d_sys::tensor::{has_overlap, is_plain};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tch::{Kind, Tensor};

impl ProcessGroup {
    pub(crate) fn check_rank(&self, what: &str, rank: usize) -> Result<()> {
        let ranks = self.world_size();
        let expected = format_args!("a rank below the world size, {ranks}");
        check(rank < ranks, what, format_args!("rank {rank}"), expected)
    }

    /// Refuses a message that cannot be sent to this rank, or received from it.
    pub(crate) fn check_message(&self, tensor: &Tensor, what: &str, peer: usize) -> Result<()> {
        self.check_rank(what, peer)?;
        let found = format_args!("rank {peer}, this rank itself");
        check(peer != self.rank(), what, found, "another rank")?;
        self.check_sendable(tensor)
    }

    pub(crate) fn refuse_nccl(&self, operation: &str) -> Result<()> {
        check(self.backend() == Backend::Gloo, operation, "called with nccl", "called with gloo")
    }

    /// For collectives, gloo copies CUDA tensors to the CPU; for point-to-point messages it does not.
    pub(crate) fn check_sendable(&self, tensor: &Tensor) -> Result<()> {
        // An undefined tensor has neither, and tch panics when asked for its device.
        tensor.f_kind()?;
        let can_send = self.backend() != Backend::Gloo || !tensor.device().is_cuda();
        let found = format_args!("on {:?}, with gloo", tensor.device());
        check(can_send, "the tensor", found, "on the CPU, because gloo sends no CUDA tensors")?;
        let has_tag = self.backend() != Backend::Gloo || self.tag >= 0;
        check(has_tag, "the tag", self.tag, "0 or more")
    }
}

/// Refuses what the backends would notice only in the middle of the exchange, which ruins the group, or not at all.
pub(crate) fn check_reduction(tensor: &Tensor, op: ReduceOp) -> Result<()> {
    let kind = tensor.f_kind()?;
    let (is_float, is_complex) = (tensor.is_floating_point(), tensor.is_complex());
    let expected = match op {
        ReduceOp::Sum => return Ok(()),
        ReduceOp::Avg if is_float || is_complex => return Ok(()),
        ReduceOp::Avg => "of floating-point numbers: use the sum and divide it",
        _ if is_complex => "of real numbers: complex ones have only a sum and a mean",
        ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor if is_float => "of integers",
        _ => return Ok(()),
    };
    Err(Error::argument(format!("ReduceOp::{op:?} of a tensor"), format!("of {kind:?}"), expected))
}

/// Refuses a list whose tensors, which [`check_length`] has counted, are not all of the shape and kind of `like`.
pub(crate) fn check_list(what: &str, list: &[Tensor], like: &Tensor) -> Result<()> {
    let (size, kind) = (like.size(), like.f_kind()?);
    for tensor in list {
        let (own_kind, own_size) = (tensor.f_kind()?, tensor.size());
        let found = format_args!("of shape {own_size:?} and kind {own_kind:?}");
        let expected = format_args!("of shape {size:?} and kind {kind:?}");
        check((&own_size, own_kind) == (&size, kind), what, found, expected)?;
    }
    Ok(())
}

pub(crate) fn check_length(what: &str, found: usize, world_size: usize) -> Result<()> {
    let expected = format_args!("one per rank, {world_size}");
    check(found == world_size, what, format_args!("a list of {found}"), expected)
}

/// What is exchanged for a tensor that is only read: contiguous real numbers. The same memory, if it holds them.
pub(crate) fn plain(tensor: &Tensor) -> Result<Tensor> {
    if is_plain(tensor) {
        return Ok(tensor.shallow_clone());
    }
    tch::no_grad(|| {
        if tensor.is_sparse() {
            let mut copy = tensor.f_zeros_like()?;
            copy.f_copy_(tensor)?;
            return Ok(copy);
        }
        let plain = tensor.f_resolve_conj()?.f_resolve_neg()?.f_contiguous()?;
        Ok(if plain.is_complex() { plain.f_view_as_real()? } else { plain })
    })
}

pub(crate) fn inputs(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(plain).collect()
}

/// Other handles to the same tensors.
pub(crate) fn handles(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::shallow_clone).collect()
}

/// The opposite of [`plain`], for a new tensor that has been received in place of one like `like`.
pub(crate) fn received(tensor: Tensor, like: Kind) -> Result<Tensor> {
    let is_complex = matches!(like, Kind::ComplexHalf | Kind::ComplexFloat | Kind::ComplexDouble);
    Ok(if is_complex { tensor.f_view_as_complex()? } else { tensor })
}

/// A tensor to which an exchange writes.
pub(crate) struct Output {
    /// What is exchanged for it.
    pub tensor: Tensor,
    /// The tensor itself, if it has other memory.
    target: Option<Tensor>,
}

impl Output {
    pub fn new(tensor: &Tensor) -> Result<Output> {
        let exchanged = plain(tensor)?;
        let size = tensor.size();
        let found = format_args!("a view of {size:?} whose elements share memory");
        let expected = "one that can be written to: exchange `tensor.contiguous()`";
        check(!has_overlap(tensor), "the tensor", found, expected)?;
        let has_other_memory =
            !is_plain(tensor) && (tensor.is_sparse() || exchanged.data_ptr() != tensor.data_ptr());
        let target = has_other_memory.then(|| tensor.shallow_clone());
        Ok(Output { tensor: exchanged, target })
    }

    /// Copies what has been exchanged into the tensor itself.
    pub fn finish(self) -> Result<()> {
        let Some(mut target) = self.target else { return Ok(()) };
        let value = received(self.tensor, target.f_kind()?)?;
        Ok(tch::no_grad(|| target.f_copy_(&value))?)
    }
}

type Exchange = Rc<dyn Fn(&ProcessGroup, &Tensor) -> Result<Vec<Tensor>>>;

thread_local! {
    /// Whether this thread computes for one of several virtual ranks, one after the other.
    pub(crate) static IN_A_PART: Cell<bool> = const { Cell::new(false) };
    /// How it gets a tensor of each virtual rank, if it computes in step with the others.
    pub(crate) static IN_STEP: RefCell<Option<Exchange>> = const { RefCell::new(None) };
}

pub(crate) fn is_in_step() -> bool {
    IN_STEP.with_borrow(Option::is_some)
}

/// A tensor of each rank, or of each virtual rank, in their order. A collective.
pub(crate) fn gather(tensor: &Tensor, group: &ProcessGroup) -> Result<Vec<Tensor>> {
    match IN_STEP.with_borrow(Option::clone) {
        Some(exchange) => exchange(group, tensor),
        None => group.all_gather(tensor),
    }
}

/// Their sum, with virtual ranks in their order.
pub(crate) fn sum(mut tensor: Tensor, group: &ProcessGroup) -> Result<Tensor> {
    if is_in_step() {
        let all = Tensor::f_stack(&gather(&tensor, group)?, 0)?;
        return Ok(all.f_sum_dim_intlist([0].as_slice(), false, None)?);
    }
    group.all_reduce(&mut tensor, ReduceOp::Sum)?;
    Ok(tensor)
}

/// Refuses what would need all virtual ranks at once.
pub(crate) fn refuse_in_a_part(what: &str) -> Result<()> {
    let expected = "used with as many ranks as virtual ranks, or, if it is SyncBatchNorm, in \
                    backward_shares: a rank computes for one after the other";
    check(!IN_A_PART.get(), what, "used in a share of virtual_ranks", expected)
}
