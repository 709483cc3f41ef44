//! Tensor operations of PyTorch that tch lacks.

use crate::{Result, arguments::pointer, arguments::pointers, error::check, ffi};
use std::{ptr::NonNull, slice};
use tch::Tensor;

/// `tensor.copy_(torch.randn(tensor.shape, dtype=tensor.dtype))` for one tensor after the other, drawn
/// on the CPU as after `torch.manual_seed(seed)`; the global generator is left alone.
pub fn randn_(tensors: &mut [Tensor], seed: u64) -> Result<()> {
    check(ffi::c10d_randn(pointers(tensors).list(), seed))
}

/// The elements of a contiguous tensor of 32-bit floats on the CPU, to be written in place, in row-major order. `None`
/// for any other tensor, and for one that can also be reached in another way: through a second handle, a view or an
/// autograd graph. What `Arc::get_mut` is to an `Arc`, this is to a tensor.
pub fn get_mut(tensor: &mut Tensor) -> Option<&mut [f32]> {
    let elements = NonNull::new(ffi::c10d_exclusive_floats(pointer(tensor)))?;
    // SAFETY: the pointer is to `numel` contiguous floats. This is the only handle to them, and it is borrowed as long
    // as the slice, so nothing else reads or writes them meanwhile. Every bit pattern is a valid float.
    Some(unsafe { slice::from_raw_parts_mut(elements.as_ptr(), tensor.numel()) })
}

/// The sums from which a batch norm's gradients are computed: for each channel of images `[N, C,
/// ..]`, the sum of `gradient`, and the sum of `gradient` times the input normalised by `mean` and
/// `var`, which are `[C]`. `torch.batch_norm_backward_reduce` does the same, but only on a GPU.
pub fn batch_norm_backward_reduce(
    gradient: &Tensor,
    input: &Tensor,
    mean: &Tensor,
    var: &Tensor,
    eps: f64,
) -> Result<(Tensor, Tensor)> {
    let sums = (Tensor::new(), Tensor::new());
    let [gradient, input, mean, var] = [gradient, input, mean, var].map(pointer);
    let (sum, normalized) = (pointer(&sums.0), pointer(&sums.1));
    check(ffi::c10d_batch_norm_backward_reduce(gradient, input, mean, var, eps, sum, normalized))?;
    Ok(sums)
}

/// `tensor.grad = gradient`.
pub fn set_grad(tensor: &mut Tensor, gradient: &Tensor) -> Result<()> {
    check(ffi::c10d_set_grad(pointer(tensor), pointer(gradient)))
}

/// `tensor.grad = None`.
pub fn clear_grad(tensor: &mut Tensor) -> Result<()> {
    check(ffi::c10d_clear_grad(pointer(tensor)))
}

/// Copies the elements of `flat` into the tensors, one after the other; `torch._foreach_copy_` of
/// `torch._utils._unflatten_dense_tensors`. None of the tensors is empty.
pub fn copy_parts(targets: &[Tensor], flat: &Tensor) -> Result<()> {
    check(ffi::c10d_unflatten_into(pointer(flat), pointers(targets).list(), false))
}

/// Adds them instead: `torch._foreach_add_`.
pub fn add_parts(targets: &[Tensor], flat: &Tensor) -> Result<()> {
    check(ffi::c10d_unflatten_into(pointer(flat), pointers(targets).list(), true))
}

/// `torch.is_grad_enabled()`, of this thread.
pub fn grad_enabled() -> bool {
    ffi::c10d_grad_enabled()
}

/// Whether a tensor's memory holds its numbers one after the other, as they are: it has no gaps, and
/// they are real and not only marked as negated.
pub fn is_plain(tensor: &Tensor) -> bool {
    ffi::c10d_is_plain(pointer(tensor))
}

/// Whether a tensor is a view of another in autograd's sense: a change in place replaces its graph.
pub fn is_view(tensor: &Tensor) -> bool {
    ffi::c10d_is_view(pointer(tensor))
}

/// Whether elements of a tensor share memory, as after `expand`, so that it cannot be written to.
pub fn has_overlap(tensor: &Tensor) -> bool {
    ffi::c10d_has_overlap(pointer(tensor))
}

/// Equal for two handles exactly if they are the same tensor (`a is b` in Python), while both live.
pub fn identity(tensor: &Tensor) -> usize {
    ffi::c10d_tensor_identity(pointer(tensor)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::{DOUBLE_CPU, FLOAT_CPU};

    #[test]
    fn whoever_has_a_tensor_alone_can_write_its_elements() {
        let mut tensor = Tensor::zeros([2, 2], FLOAT_CPU);
        get_mut(&mut tensor).unwrap().copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(tensor, Tensor::from_slice2(&[[1.0f32, 2.0], [3.0, 4.0]]));
    }

    #[test]
    fn elements_that_somebody_else_can_see_are_not_given_out() {
        let mut tensor = Tensor::zeros([2, 2], FLOAT_CPU);
        let others: [fn(&Tensor) -> Tensor; 3] =
            [Tensor::shallow_clone, |tensor| tensor.get(1), Tensor::detach];
        for other in others {
            let _other = other(&tensor);
            assert!(get_mut(&mut tensor).is_none());
        }
        // The product keeps its factors for the backward pass.
        let weight = Tensor::ones([2, 2], FLOAT_CPU).set_requires_grad(true);
        let product = &weight * &tensor;
        assert!(get_mut(&mut tensor).is_none());
        drop(product);
        assert!(get_mut(&mut tensor).is_some());
    }

    #[test]
    fn elements_that_are_no_floats_in_a_row_are_not_given_out() {
        assert!(get_mut(&mut Tensor::zeros([2], DOUBLE_CPU)).is_none());
        assert!(get_mut(&mut Tensor::zeros([0], FLOAT_CPU)).is_none());
        assert!(get_mut(&mut Tensor::zeros([2, 3], FLOAT_CPU).transpose(0, 1)).is_none());
        assert!(get_mut(&mut Tensor::new()).is_none());
    }

    #[test]
    fn normal_numbers_are_pythons_drawn_for_one_tensor_after_the_other() {
        let mut tensors = [[3, 5], [2, 20]].map(|shape| Tensor::zeros(shape, FLOAT_CPU));
        randn_(&mut tensors, 7).unwrap();
        // torch.manual_seed(7); torch.randn(3, 5); torch.randn(2, 20)
        for (tensor, place, expected) in [
            (0, [0, 0], -0.1467951),
            (0, [2, 4], 1.3954508),
            (1, [0, 0], -0.08352823),
            (1, [1, 19], -0.9632286),
        ] {
            let drawn = tensors[tensor].double_value(&place);
            // Processors round the logarithms and cosines differently.
            assert!((drawn - expected).abs() < 1e-6, "{drawn} instead of {expected}");
        }
    }

    #[test]
    fn sums_for_a_batch_norm_are_not_read_beyond_its_tensors() {
        let [images, row, none] = [&[2, 3, 4][..], &[3], &[]].map(|it| Tensor::ones(it, FLOAT_CPU));
        let few = Tensor::ones([2], FLOAT_CPU);
        let (sum, _) = batch_norm_backward_reduce(&images, &images, &row, &row, 1e-5).unwrap();
        assert_eq!(sum, Tensor::full([3], 8, FLOAT_CPU));
        for [gradient, input, mean, var] in [
            [&row, &images, &row, &row],
            [&images, &images, &few, &row],
            [&images, &images, &row, &none],
            [&images, &images, &Tensor::new(), &row],
            [&row, &row, &row, &row],
        ] {
            let error = batch_norm_backward_reduce(gradient, input, mean, var, 1e-5).unwrap_err();
            assert!(error.message().contains("images [N, C, ..]"), "{error}");
        }
    }
}
