//! Collectives whose results have gradients: `torch.distributed.nn.functional`.
//!
//! Each returns new tensors and leaves its inputs unchanged. The backward pass exchanges the gradients, so the results
//! must contribute to the loss of every rank, and the backward passes of all ranks must reach the same collectives in
//! the same order. A loss over the outputs of all ranks, as in contrastive learning, needs no more than this:
//!
//! ```
//! use tch::{Kind, Tensor};
//! use tch_parallel::distributed::{ProcessGroup, functional};
//!
//! let group = ProcessGroup::from_env()?;
//! let own = Tensor::ones([4, 8], (Kind::Float, group.device())).set_requires_grad(true);
//! let all = Tensor::cat(&functional::all_gather(&own, &group)?, 0);
//! let similarities = own.matmul(&all.tr()); // with the samples of all ranks
//! similarities.mean(Kind::Float).backward();
//! assert_eq!(own.grad().size(), [4, 8]);
//! # Ok::<(), tch_parallel::Error>(())
//! ```
//!
//! There are no second derivatives: a backward pass with `create_graph` fails.
//!
//! Under [`DistributedDataParallel`](crate::distributed::DistributedDataParallel), which divides the sum of the ranks' gradients by
//! their number, such a loss counts as the mean over the ranks.
//!
//! # Errors
//! Those of the collective with the same name. A backward pass that fails returns its error from
//! [`DistributedDataParallel::backward`](crate::distributed::DistributedDataParallel::backward) or tch's `f_backward`.

use super::arguments::{check_length, check_list, refuse_in_a_part};
use crate::distributed::fault::blame::for_the_engine;
use crate::distributed::group::{Backend, ProcessGroup};
use crate::{Error, Result};
use c10d_sys::{ReduceOp, autograd::hook_gradients, tensor::grad_enabled};
use std::slice::from_ref;
use tch::{Tensor, no_grad};

/// The tensor reduced over all ranks, element by element. The gradients of all ranks are reduced in the same way.
pub fn all_reduce(tensor: &Tensor, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    let reduced = move |group: &ProcessGroup, tensor: &Tensor| -> Result<_> {
        let mut sum = tensor.f_detach_copy()?;
        group.all_reduce(&mut sum, op)?;
        Ok(sum)
    };
    let sum = no_grad(|| reduced(group, tensor))?;
    one(from_ref(tensor), sum, group, move |group, gradient| Ok(vec![reduced(group, gradient)?]))
}

/// The tensor of rank `src`, whose gradient is the sum of all ranks'.
pub fn broadcast(tensor: &Tensor, src: usize, group: &ProcessGroup) -> Result<Tensor> {
    let mut copy = no_grad(|| tensor.f_detach_copy())?;
    group.broadcast(&mut copy, src)?;
    one(from_ref(tensor), copy, group, move |group, gradient| {
        let mut sum = gradient.f_detach_copy()?;
        group.reduce(&mut sum, src, ReduceOp::Sum)?;
        Ok(vec![if group.rank() == src { sum } else { sum.f_zeros_like()? }])
    })
}

/// The tensor reduced over all ranks, on rank `dst`. The gradient of its result is that of every rank's tensor. The other
/// ranks' results are undefined, but must contribute to the loss too.
pub fn reduce(tensor: &Tensor, dst: usize, op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    let mut sum = no_grad(|| tensor.f_detach_copy())?;
    group.reduce(&mut sum, dst, op)?;
    one(from_ref(tensor), sum, group, move |group, gradient| {
        let mut own = gradient.f_detach_copy()?;
        group.broadcast(&mut own, dst)?;
        Ok(vec![own])
    })
}

/// On rank `dst`, the tensors of all ranks, in the order of ranks, all of one shape. The others get as many zeros, whose
/// gradients do not count.
pub fn gather(tensor: &Tensor, dst: usize, group: &ProcessGroup) -> Result<Vec<Tensor>> {
    let all = no_grad(|| gathered(group, tensor, dst))?;
    differentiable(from_ref(tensor), all, group, move |group, gradients| {
        Ok(vec![scattered(group, gradients, dst)?])
    })
}

/// On rank r, the `tensors[r]` of rank `src`. The other ranks also give one tensor of that shape for each rank. Their
/// values do not count; they must require gradients if those of rank `src` do, and these are 0.
pub fn scatter(tensors: &[Tensor], src: usize, group: &ProcessGroup) -> Result<Tensor> {
    let own = no_grad(|| scattered(group, tensors, src))?;
    one(tensors, own, group, move |group, gradient| gathered(group, gradient, src))
}

/// The tensors of all ranks, in the order of ranks, all of one shape.
pub fn all_gather(tensor: &Tensor, group: &ProcessGroup) -> Result<Vec<Tensor>> {
    let gathered = no_grad(|| group.all_gather(tensor))?;
    differentiable(from_ref(tensor), gathered, group, |group, gradients| {
        let gradient = match group.backend() {
            Backend::Nccl => group.reduce_scatter(gradients, ReduceOp::Sum)?,
            Backend::Gloo => Tensor::f_stack(&exchanged(group, gradients)?, 0)?
                .f_sum_dim_intlist(0, false, None)?,
        };
        Ok(vec![gradient])
    })
}

/// On rank r, the `input_list[r]` of all ranks, reduced with `op`.
pub fn reduce_scatter(input_list: &[Tensor], op: ReduceOp, group: &ProcessGroup) -> Result<Tensor> {
    let reduced = no_grad(|| group.reduce_scatter(input_list, op))?;
    one(input_list, reduced, group, |group, gradient| group.all_gather(gradient))
}

/// Sends `input_list[r]` to rank r, and returns what each has sent to this one, in order, all of one shape.
///
/// ```
/// # use tch::{Kind, Tensor};
/// # use tch_parallel::distributed::{ProcessGroup, functional};
/// # let group = ProcessGroup::from_env()?;
/// let rows = Tensor::ones([group.world_size() as i64, 3], (Kind::Float, group.device()));
/// let received = functional::all_to_all(&rows.split(1, 0), &group)?;
/// assert_eq!(Tensor::cat(&received, 0), functional::all_to_all_single(&rows, &[], &[], &group)?);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub fn all_to_all(input_list: &[Tensor], group: &ProcessGroup) -> Result<Vec<Tensor>> {
    let received = no_grad(|| exchanged(group, input_list))?;
    differentiable(input_list, received, group, exchanged)
}

/// The parts of all ranks' inputs that are for this rank, as [`ProcessGroup::all_to_all_single`] describes them.
pub fn all_to_all_single(
    input: &Tensor,
    output_split_sizes: &[i64],
    input_split_sizes: &[i64],
    group: &ProcessGroup,
) -> Result<Tensor> {
    let own_size = input.size();
    let mut size = own_size.clone();
    if let Some(rows) = size.first_mut().filter(|_| !output_split_sizes.is_empty()) {
        *rows = output_split_sizes.iter().sum();
    }
    let options = (input.f_kind()?, input.device());
    let mut output = Tensor::f_empty(size, options)?;
    no_grad(|| group.all_to_all_single(&mut output, input, output_split_sizes, input_split_sizes))?;
    let [to, from] = [output_split_sizes, input_split_sizes].map(<[i64]>::to_vec);
    one(from_ref(input), output, group, move |group, gradient| {
        let mut own = Tensor::f_empty(own_size.as_slice(), options)?;
        group.all_to_all_single(&mut own, gradient, &from, &to)?;
        Ok(vec![own])
    })
}

fn gathered(group: &ProcessGroup, tensor: &Tensor, dst: usize) -> Result<Vec<Tensor>> {
    let zeros = || (0..group.world_size()).map(|_| Ok(tensor.f_zeros_like()?)).collect();
    group.gather(tensor, dst)?.map_or_else(zeros, Ok)
}

fn scattered(group: &ProcessGroup, tensors: &[Tensor], src: usize) -> Result<Tensor> {
    check_length("tensors", tensors.len(), group.world_size())?;
    check_list("tensors", tensors, &tensors[0])?;
    let mut own = tensors[0].f_empty_like()?;
    group.scatter(&mut own, (group.rank() == src).then_some(tensors), src)?;
    Ok(own)
}

/// All-to-all. With gloo, one scatter by each rank, as in PyTorch: releases before 2.12 have no other.
fn exchanged(group: &ProcessGroup, input_list: &[Tensor]) -> Result<Vec<Tensor>> {
    check_length("input_list", input_list.len(), group.world_size())?;
    check_list("input_list", input_list, &input_list[0])?;
    let mut outputs = input_list.iter().map(Tensor::f_empty_like).collect::<Result<Vec<_>, _>>()?;
    match group.backend() {
        Backend::Nccl => group.all_to_all(&mut outputs, input_list)?,
        Backend::Gloo => {
            for (src, output) in outputs.iter_mut().enumerate() {
                let own = (src == group.rank()).then_some(input_list);
                group.scatter(output, own, src)?;
            }
        }
    }
    Ok(outputs)
}

/// [`differentiable`] with one result.
fn one(
    inputs: &[Tensor],
    output: Tensor,
    group: &ProcessGroup,
    backward: impl Fn(&ProcessGroup, &Tensor) -> Result<Vec<Tensor>> + Send + 'static,
) -> Result<Tensor> {
    let backward = move |group: &ProcessGroup, gradients: &[Tensor]| backward(group, &gradients[0]);
    Ok(differentiable(inputs, vec![output], group, backward)?.remove(0))
}

/// The results of a collective. `backward` turns their gradients into those of the inputs, which continue from there.
fn differentiable(
    inputs: &[Tensor],
    mut outputs: Vec<Tensor>,
    group: &ProcessGroup,
    backward: impl Fn(&ProcessGroup, &[Tensor]) -> Result<Vec<Tensor>> + Send + 'static,
) -> Result<Vec<Tensor>> {
    refuse_in_a_part("a collective of functional")?;
    if !grad_enabled() || !inputs.iter().any(Tensor::requires_grad) {
        return Ok(outputs);
    }
    let group = group.clone();
    let like = |output: &Tensor| (output.size(), (output.kind(), output.device()));
    let results: Vec<_> = outputs.iter().map(like).collect();
    hook_gradients(&mut outputs, inputs, move |gradients, _| {
        // Other ranks also need the gradient of a result that this rank's loss does not use.
        let gradients = gradients.into_iter().zip(&results).map(|(gradient, (size, options))| {
            gradient.map_or_else(|| Tensor::f_zeros(size.as_slice(), *options), Ok)
        });
        let exchange =
            || backward(&group, &gradients.collect::<Result<Vec<_>, _>>().map_err(Error::from)?);
        let gradients = no_grad(exchange).map_err(for_the_engine)?;
        Ok(gradients.into_iter().map(Some).collect())
    })
    .map_err(Error::engine("hook_gradients"))?;
    Ok(outputs)
}
