//! Several tensors that an operation treats at once.

mod operations;

use crate::{Result, check::check};
use c10d_sys::{arithmetic::copy, foreach::Operation, foreach::foreach, foreach::foreach_};
use std::ops::{Deref, DerefMut};
use tch::{TchError, Tensor};
use tch_parallel_base::tensors::grouped;

/// Tensors that an optimizer treats alike: what a [`Step`](super::Step) consists of.
///
/// An operation either runs as one of PyTorch's `_foreach_*` operations, which on a GPU is one
/// launch for the whole list, or as the usual operation for one tensor after the other. The results
/// can differ in the last bit, as they do in Python. Dereferences to a slice of tensors.
#[derive(Debug)]
pub struct TensorList {
    tensors: Vec<Tensor>,
    foreach: bool,
}

/// `_foreach_*` operations if all tensors are dense and on GPUs.
impl From<Vec<Tensor>> for TensorList {
    fn from(tensors: Vec<Tensor>) -> Self {
        let supports = |tensor: &Tensor| tensor.device().is_cuda() && !tensor.is_sparse();
        // They refuse an empty list.
        let foreach = !tensors.is_empty() && tensors.iter().all(supports);
        TensorList { tensors, foreach }
    }
}

impl Deref for TensorList {
    type Target = [Tensor];

    fn deref(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl DerefMut for TensorList {
    fn deref_mut(&mut self) -> &mut [Tensor] {
        &mut self.tensors
    }
}

impl TensorList {
    pub(super) fn new(tensors: Vec<Tensor>, foreach: bool) -> Self {
        TensorList { tensors, foreach }
    }

    /// Whether operations are PyTorch's `_foreach_*`.
    pub fn is_foreach(&self) -> bool {
        self.foreach
    }

    /// The same tensors, not copies.
    pub fn shallow_clone(&self) -> Self {
        TensorList::new(self.iter().map(Tensor::shallow_clone).collect(), self.foreach)
    }

    /// Copies without a graph.
    pub fn copy(&self) -> Result<Self> {
        self.map(copy)
    }

    /// Views of complex numbers as pairs of real ones; other tensors as they are.
    pub fn as_real(&self) -> Result<Self> {
        self.map(as_real)
    }

    /// The inverse of [`as_real`](Self::as_real) for complex numbers.
    pub(super) fn as_complex(&self) -> Result<Self> {
        self.map(Tensor::f_view_as_complex)
    }

    fn map(&self, f: impl Fn(&Tensor) -> Result<Tensor, TchError>) -> Result<Self> {
        Ok(TensorList::new(self.iter().map(f).collect::<Result<_, _>>()?, self.foreach))
    }

    /// The operation with new tensors as results; `single` computes that of one tensor.
    fn results(
        &self,
        operation: Operation,
        others: &[&[Tensor]],
        numbers: &[f64],
        single: impl Fn(&Tensor, usize) -> Result<Tensor, TchError>,
    ) -> Result<Self> {
        others.iter().try_for_each(|other| self.check_length(other.len()))?;
        let tensors = if self.foreach {
            foreach(operation, self, others, numbers)?
        } else {
            self.iter().enumerate().map(|(i, it)| single(it, i)).collect::<Result<_, _>>()?
        };
        Ok(TensorList::new(tensors, self.foreach))
    }

    fn in_place(
        &mut self,
        operation: Operation,
        others: &[&[Tensor]],
        numbers: &[f64],
        single: impl Fn(&mut Tensor, usize) -> Result<(), TchError>,
    ) -> Result<()> {
        others.iter().try_for_each(|other| self.check_length(other.len()))?;
        if self.foreach {
            foreach_(operation, self, others, numbers)?;
        } else {
            self.iter_mut().enumerate().try_for_each(|(i, tensor)| single(tensor, i))?;
        }
        Ok(())
    }

    fn check_length(&self, length: usize) -> Result<()> {
        let own = self.len();
        let expected = format_args!("of {own}, like the list of tensors");
        check(length == own, "a list", format_args!("of {length}"), expected)
    }
}

/// The items in lists whose tensors are of one kind and on one device, as `_foreach_*` operations
/// need them: `_group_tensors_by_device_and_dtype`.
pub(super) fn by_device_and_kind<T>(
    items: impl IntoIterator<Item = T>,
    tensor: impl Fn(&T) -> &Tensor,
) -> Vec<Vec<T>> {
    grouped(items, |item| (tensor(item).device(), tensor(item).kind()))
}

/// `torch.view_as_real` of a complex tensor: PyTorch's optimizers treat a complex number as two
/// independent real ones. Another tensor is returned as it is.
pub(super) fn as_real(tensor: &Tensor) -> Result<Tensor, TchError> {
    if tensor.f_is_complex()? { tensor.f_view_as_real() } else { Ok(tensor.shallow_clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_different_lengths_are_refused_and_no_panic() {
        let ones = |length| (0..length).map(|_| Tensor::from_slice(&[1f32])).collect::<Vec<_>>();
        for foreach in [false, true] {
            let mut list = TensorList::new(ones(2), foreach);
            let short = TensorList::new(ones(1), foreach);
            for result in [
                list.mul_(&short),
                list.add_scaled(&short, 1.0).map(drop),
                list.addcdiv_numbers_(&short, &short, &[1.0; 2]),
                list.mul_numbers_(&[1.0]),
            ] {
                let error = result.unwrap_err().to_string();
                assert_eq!(error, "a list is of 1, but must be of 2, like the list of tensors");
            }
        }
    }
}
