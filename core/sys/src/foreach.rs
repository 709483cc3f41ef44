//! One operation for a list of tensors: `torch._foreach_*`.
//!
//! For tensors of one kind on one GPU this is one launch, or a few, instead of one for each tensor.
//! Elsewhere PyTorch computes one tensor after the other.

use crate::{arguments::pointer, arguments::pointers, arithmetic::as_tchs, error::check, ffi};
use std::{iter, ptr::null_mut};
use tch::{TchError, Tensor};

/// An operation, and the lists and numbers that it takes besides the tensors that it is applied to.
/// Numbered as in c10d.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// `_foreach_add(self, number)`
    AddNumber,
    /// `_foreach_add(self, numbers)`; only in place.
    AddNumbers,
    /// `_foreach_mul(self, number)`; only in place.
    MulNumber,
    /// `_foreach_mul(self, numbers)`
    MulNumbers,
    /// `_foreach_div(self, numbers)`; only in place.
    DivNumbers,
    /// `_foreach_clamp_min(self, number)`; only in place.
    ClampMin,
    /// `_foreach_clamp_max(self, number)`; only in place.
    ClampMax,
    /// `_foreach_sqrt(self)`
    Sqrt,
    /// `_foreach_reciprocal(self)`; only in place.
    Reciprocal,
    /// `_foreach_neg(self)`; not in place.
    Neg,
    /// `_foreach_norm(self, number)`; not in place.
    Norm,
    /// `_foreach_mul(self, list)`; only in place.
    Mul,
    /// `_foreach_div(self, list)`; only in place.
    Div,
    /// `_foreach_maximum(self, list)`; only in place.
    Maximum,
    /// `_foreach_add(self, list, alpha=number)`
    AddScaled,
    /// `_foreach_lerp(self, list, number)`; only in place.
    Lerp,
    /// `_foreach_addcmul(self, list, list, number)`
    AddCMul,
    /// `_foreach_addcdiv(self, list, list, number)`; only in place.
    AddCDiv,
    /// `_foreach_addcdiv(self, list, list, numbers)`; only in place.
    AddCDivNumbers,
}

/// The operation in place: `torch._foreach_…_(targets, …)`.
///
/// # Errors
/// If the lists are of different lengths or empty, if it needs other ones or other numbers, or if
/// it is not supported in place.
pub fn foreach_(
    operation: Operation,
    targets: &mut [Tensor],
    others: &[&[Tensor]],
    numbers: &[f64],
) -> Result<(), TchError> {
    call(operation, targets, others, numbers, None)
}

/// The operation with new tensors as results: `torch._foreach_…(sources, …)`.
///
/// # Errors
/// Those of [`foreach_`], and for an operation that is only supported in place.
pub fn foreach(
    operation: Operation,
    sources: &[Tensor],
    others: &[&[Tensor]],
    numbers: &[f64],
) -> Result<Vec<Tensor>, TchError> {
    let mut results = vec![null_mut(); sources.len()];
    call(operation, sources, others, numbers, Some(&mut results))?;
    // SAFETY: the call has succeeded, so it has made each of these at::Tensors with `new` and given up ownership of it.
    Ok(results.into_iter().map(|tensor| unsafe { Tensor::from_ptr(tensor.cast()) }).collect())
}

/// `torch._foreach_mul_(targets, factor)`: the factor is a tensor with one element.
///
/// # Errors
/// If the list is empty, or the factor has several elements.
pub fn mul_tensor_(targets: &mut [Tensor], factor: &Tensor) -> Result<(), TchError> {
    check(ffi::c10d_foreach_mul_tensor(pointers(targets).list(), pointer(factor))).map_err(as_tchs)
}

/// In place without `results`, which otherwise are as many as the tensors.
fn call(
    operation: Operation,
    tensors: &[Tensor],
    others: &[&[Tensor]],
    numbers: &[f64],
    results: Option<&mut [*mut ffi::Tensor]>,
) -> Result<(), TchError> {
    if others.len() > 2 || others.iter().any(|other| other.len() != tensors.len()) {
        let lengths: Vec<_> = iter::once(&tensors).chain(others).map(|list| list.len()).collect();
        return Err(TchError::Torch(format!("{operation:?} got lists of the lengths {lengths:?}")));
    }
    // ATen itself refuses a list that is empty where it needs one.
    let [first, second] = [0, 1].map(|i| pointers(others.get(i).copied().unwrap_or_default()));
    let (operation, tensors) = (operation as u8, pointers(tensors));
    let (tensors, a, b) = (tensors.list(), first.list(), second.list());
    let out = results.map_or(null_mut(), <[_]>::as_mut_ptr);
    // SAFETY: there is room for a result for each tensor.
    let status = unsafe { ffi::c10d_foreach(operation, tensors, a, b, numbers.into(), out) };
    check(status).map_err(as_tchs)
}

#[cfg(test)]
mod tests {
    use super::Operation::*;
    use super::*;

    fn list(values: [f32; 2]) -> [Tensor; 2] {
        values.map(|value| Tensor::from_slice(&[value]))
    }

    fn values(list: &[Tensor]) -> Vec<f64> {
        list.iter().map(|tensor| tensor.double_value(&[0])).collect()
    }

    #[test]
    fn every_operation_in_place_is_the_one_that_its_name_says() {
        let (a, b) = (list([3.0, 8.0]), list([2.0, 4.0]));
        let (none, one, two): ([&[Tensor]; 0], _, _) = ([], [&a[..]], [&a[..], &b[..]]);
        for (operation, others, numbers, expected) in [
            (AddNumber, &none[..], &[0.5][..], [4.5, 16.5]),
            (AddNumbers, &none, &[0.5, 1.0], [4.5, 17.0]),
            (MulNumber, &none, &[0.5], [2.0, 8.0]),
            (MulNumbers, &none, &[0.5, 2.0], [2.0, 32.0]),
            (DivNumbers, &none, &[0.5, 2.0], [8.0, 8.0]),
            (ClampMin, &none, &[5.0], [5.0, 16.0]),
            (ClampMax, &none, &[5.0], [4.0, 5.0]),
            (Sqrt, &none, &[], [2.0, 4.0]),
            (Reciprocal, &none, &[], [0.25, 0.0625]),
            (Mul, &one, &[], [12.0, 128.0]),
            (Div, &[&b], &[], [2.0, 4.0]),
            (Maximum, &[&list([5.0, 1.0])], &[], [5.0, 16.0]),
            (AddScaled, &one, &[-1.0], [1.0, 8.0]),
            (Lerp, &one, &[0.5], [3.5, 12.0]),
            (AddCMul, &two, &[0.5], [7.0, 32.0]),
            (AddCDiv, &two, &[2.0], [7.0, 20.0]),
            (AddCDivNumbers, &two, &[2.0, -1.0], [7.0, 14.0]),
        ] {
            let mut targets = list([4.0, 16.0]);
            foreach_(operation, &mut targets, others, numbers).unwrap();
            assert_eq!(values(&targets), expected, "{operation:?}");
        }
        let mut targets = list([4.0, 16.0]);
        mul_tensor_(&mut targets, &Tensor::from(0.25f32)).unwrap();
        assert_eq!(values(&targets), [1.0, 4.0]);
    }

    #[test]
    fn every_operation_with_new_results_leaves_its_operands_as_they_are() {
        let (sources, a, b) = (list([4.0, 16.0]), list([3.0, 8.0]), list([2.0, 4.0]));
        let (one, two): ([&[Tensor]; 1], [&[Tensor]; 2]) = ([&a], [&a, &b]);
        for (operation, others, numbers, expected) in [
            (AddNumber, &[][..], &[0.5][..], [4.5, 16.5]),
            (MulNumbers, &[], &[0.5, 2.0], [2.0, 32.0]),
            (Sqrt, &[], &[], [2.0, 4.0]),
            (Neg, &[], &[], [-4.0, -16.0]),
            (AddScaled, &one, &[-1.0], [1.0, 8.0]),
            (AddCMul, &two, &[0.5], [7.0, 32.0]),
        ] {
            let results = foreach(operation, &sources, others, numbers).unwrap();
            assert_eq!(values(&results), expected, "{operation:?}");
        }
        let norms = foreach(Norm, &[Tensor::from_slice(&[3f32, 4.0])], &[], &[2.0]).unwrap();
        assert_eq!(norms[0].double_value(&[]), 5.0);
        assert_eq!(values(&sources), [4.0, 16.0]);
    }

    #[test]
    fn lists_and_numbers_that_do_not_fit_are_errors_and_no_panic() {
        let (mut targets, short) = (list([4.0, 16.0]), [Tensor::from_slice(&[1f32])]);
        let refused = |result: Result<(), TchError>| result.unwrap_err().to_string();
        let error = refused(foreach_(Mul, &mut targets, &[&short], &[]));
        assert!(error.contains("Mul got lists of the lengths [2, 1]"), "{error}");
        // ATen would read past the end of a list that is missing.
        for (operation, numbers) in [(Mul, &[][..]), (AddCDiv, &[1.0])] {
            refused(foreach_(operation, &mut targets, &[], numbers));
        }
        refused(foreach_(AddNumber, &mut targets, &[], &[1.0, 2.0]));
        refused(foreach_(AddNumbers, &mut targets, &[], &[1.0]));
        refused(foreach_(Norm, &mut targets, &[], &[2.0]));
        assert!(foreach(Lerp, &targets, &[], &[0.5]).is_err());
        assert!(foreach_(Sqrt, &mut [], &[], &[]).is_err());
    }
}
