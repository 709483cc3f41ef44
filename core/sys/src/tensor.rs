//! Tensor operations that PyTorch has and tch lacks.

use crate::error::check;
use crate::process_group::{pointer, pointers};
use crate::{Error, ffi};
use std::mem::MaybeUninit;
use std::slice;
use tch::{Device, Kind, TchError, Tensor};

/// `torch.randperm(n, generator=torch.Generator().manual_seed(seed))`: the same numbers, and the
/// global generator is left alone.
pub fn randperm(n: usize, seed: u64) -> Result<Vec<i64>, Error> {
    let mut permutation = vec![0; n];
    // SAFETY: `permutation` has room for the n numbers that the call writes. A vector's length
    // fits an i64.
    check(unsafe { ffi::c10d_randperm(n as i64, seed, permutation.as_mut_ptr()) })?;
    Ok(permutation)
}

/// `tensor.copy_(torch.randn(tensor.shape, dtype=tensor.dtype))` for one tensor after the other, drawn
/// on the CPU as after `torch.manual_seed(seed)`; the global generator is left alone.
pub fn randn_(tensors: &mut [Tensor], seed: u64) -> Result<(), Error> {
    // SAFETY: `tensors` live through the call, and nobody else holds them, by `&mut`.
    check(unsafe { ffi::c10d_randn(pointers(tensors).as_mut_ptr(), tensors.len(), seed) })
}

/// A new tensor of 32-bit floats on the CPU, which `fill` writes in place, the last dimension running
/// fastest. For batches: a slice would have to be copied into a tensor, and both be in memory.
///
/// As with `torch.empty`, what `fill` leaves out has any value.
pub fn from_fn(
    size: &[i64],
    fill: impl FnOnce(&mut [MaybeUninit<f32>]),
) -> Result<Tensor, TchError> {
    let tensor = Tensor::f_empty(size, (Kind::Float, Device::Cpu))?;
    // A tensor without elements may have no memory.
    if tensor.numel() > 0 {
        // SAFETY: a new tensor is contiguous, so its `numel` floats lie at `data_ptr`. Nobody else
        // has the tensor yet, and it lives through the call. Nothing is read, and MaybeUninit may
        // hold any bytes.
        fill(unsafe { slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) });
    }
    Ok(tensor)
}

/// `tensor.add_(other, alpha=alpha)`: one rounding an element where the kernel has a fused
/// multiply-add, which `tensor += other * alpha` does not.
pub fn add_scaled_(tensor: &mut Tensor, other: &Tensor, alpha: f64) -> Result<(), Error> {
    // SAFETY: both tensors live through the call.
    check(unsafe { ffi::c10d_add_scaled(pointer(tensor), pointer(other), alpha) })
}

/// `tensor.addcmul_(a, b, value=value)`: adds `value * a * b`. tch's has no `value`.
pub fn addcmul_(tensor: &mut Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<(), Error> {
    // SAFETY: the tensors live through the call.
    check(unsafe { ffi::c10d_addcmul(pointer(tensor), pointer(a), pointer(b), value) })
}

/// `tensor.addcdiv_(a, b, value=value)`: adds `value * a / b`. tch's has no `value`.
pub fn addcdiv_(tensor: &mut Tensor, a: &Tensor, b: &Tensor, value: f64) -> Result<(), Error> {
    // SAFETY: the tensors live through the call.
    check(unsafe { ffi::c10d_addcdiv(pointer(tensor), pointer(a), pointer(b), value) })
}

/// `tensor.grad = gradient`.
pub fn set_grad(tensor: &mut Tensor, gradient: &Tensor) -> Result<(), Error> {
    // SAFETY: both tensors live through the call, which takes a reference of its own.
    check(unsafe { ffi::c10d_set_grad(pointer(tensor), pointer(gradient)) })
}

/// `tensor.grad = None`.
pub fn clear_grad(tensor: &mut Tensor) -> Result<(), Error> {
    // SAFETY: `tensor` lives through the call.
    check(unsafe { ffi::c10d_clear_grad(pointer(tensor)) })
}

/// `torch.is_grad_enabled()`, of this thread.
pub fn grad_enabled() -> bool {
    // SAFETY: reads a thread-local flag.
    unsafe { ffi::c10d_grad_enabled() }
}

/// Equal for two handles exactly if they are the same tensor (`a is b` in Python), while both live.
pub fn identity(tensor: &Tensor) -> usize {
    // SAFETY: `tensor` lives through the call.
    unsafe { ffi::c10d_tensor_identity(pointer(tensor)) as usize }
}
