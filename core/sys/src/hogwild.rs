//! Parameters that several threads read and write at once, without a lock: what Hogwild! needs.
//!
//! In Rust, a writer has exclusive access by `&mut`, or uses a type that defines how threads share the data. A tensor
//! does neither: `shallow_clone` makes a second handle to the same memory from a `&Tensor`, the handle can move to
//! another thread, and the compiler does not know that both share memory. If both are used, libtorch's kernels race for
//! plain floats, which is undefined behaviour in C++ and in Rust: not just a stale or a lost value, but anything.
//! [`AtomicTensor`] takes the tensor away, and gives threads access to its memory only by atomic operations.

use crate::tensor::get_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fmt, ptr::NonNull, ptr::slice_from_raw_parts_mut};
use tch::{Kind, Tensor};

/// A tensor of 32-bit floats whose elements threads read and change one by one, each atomically but
/// in no particular order, which is all that Niu et al. 2011, "Hogwild!", section 2, assume.
///
/// If another thread is writing, a read returns elements of different ages: values that the
/// parameters as a whole may never have had.
pub struct AtomicTensor {
    /// Owns the memory. It is not accessed until it is returned: to libtorch, the elements are plain floats.
    tensor: Tensor,
    /// The elements of `tensor`.
    elements: NonNull<[AtomicU32]>,
    /// The shape of `tensor`.
    shape: Vec<i64>,
}

// SAFETY: this owns the tensor, which owns the memory, so both move to the other thread together. A tch tensor is Send.
unsafe impl Send for AtomicTensor {}
// SAFETY: a `&AtomicTensor` gives no access to `tensor`, only to atomics and to numbers that never change.
unsafe impl Sync for AtomicTensor {}

/// Reads none of the elements, unlike a tensor's.
impl fmt::Debug for AtomicTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicTensor").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl AtomicTensor {
    /// Takes a contiguous tensor of 32-bit floats on the CPU with at least one element. `None` for
    /// any other tensor, and for one that has another handle, by the rules of [`get_mut`]: plain
    /// reads and writes through that handle would race with the atomic ones.
    pub fn new(mut tensor: Tensor) -> Option<AtomicTensor> {
        let shape = tensor.size();
        let floats = get_mut(&mut tensor)?;
        let elements = slice_from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len());
        Some(AtomicTensor { elements: NonNull::new(elements)?, tensor, shape })
    }

    fn elements(&self) -> &[AtomicU32] {
        // SAFETY: the memory holds that many floats for as long as `tensor` lives, which is longer than the borrow of
        // `self`. An `AtomicU32` has the size and alignment of a float, and every bit pattern is valid. There is no
        // other handle to the memory, so every read and write goes through such a slice and is atomic.
        unsafe { self.elements.as_ref() }
    }

    /// A copy, read element by element.
    pub fn load(&self) -> Tensor {
        let bits = self.elements().iter().map(|element| element.load(Relaxed));
        let floats: Vec<_> = bits.map(f32::from_bits).collect();
        Tensor::from_slice(&floats).view(self.shape.as_slice())
    }

    /// `tensor.sub_(delta, alpha=alpha)`, element by element. No update is lost, whatever other
    /// threads do to the same element. Elements for which `delta` is 0 are not touched: the fewer
    /// elements a step changes, the less often threads collide, which is what Hogwild! relies on.
    ///
    /// # Panics
    /// If `delta` is not a tensor of 32-bit floats with the same number of elements.
    pub fn fetch_sub_scaled(&self, delta: &Tensor, alpha: f32) {
        let elements = self.elements();
        let floats = (Kind::Float, elements.len());
        assert_eq!((delta.kind(), delta.numel()), floats, "a step has a float for each element");
        let mut steps = vec![0.0; elements.len()];
        delta.resolve_neg().copy_data(&mut steps, elements.len());
        for (element, step) in elements.iter().zip(steps).filter(|(_, step)| *step != 0.0) {
            let subtracted = |bits| Some((f32::from_bits(bits) - alpha * step).to_bits());
            // Processors cannot subtract floats atomically: this retries until no other thread interferes.
            let _ = element.fetch_update(Relaxed, Relaxed, subtracted);
        }
    }

    /// The tensor, once no other thread can write to it.
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn no_step_of_any_thread_is_lost() {
        const THREADS: i64 = 4;
        const STEPS: i64 = 20_000;
        // Few elements, so that threads really collide.
        let shared = AtomicTensor::new(Tensor::zeros([2, 3], FLOAT_CPU)).unwrap();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let delta = Tensor::ones([2, 3], FLOAT_CPU);
                    (0..STEPS).for_each(|_| shared.fetch_sub_scaled(&delta, 0.5));
                });
            }
        });
        // A float reaches this total in steps of one half without rounding.
        let total = (THREADS * STEPS) as f64 * -0.5;
        assert_eq!(shared.into_tensor(), Tensor::full([2, 3], total, FLOAT_CPU));
    }

    #[test]
    fn a_copy_has_the_shape_and_is_no_longer_shared() {
        let shared = AtomicTensor::new(Tensor::ones([2, 3], FLOAT_CPU)).unwrap();
        let mut copy = shared.load();
        assert_eq!(copy, Tensor::ones([2, 3], FLOAT_CPU));
        let _ = copy.fill_(7.0);
        shared.fetch_sub_scaled(&copy, 1.0);
        shared.fetch_sub_scaled(&copy.internal_neg_view(), 2.0);
        assert_eq!(shared.load(), Tensor::full([2, 3], 8.0, FLOAT_CPU));
    }

    #[test]
    fn a_step_of_nothing_touches_nothing() {
        let shared = AtomicTensor::new(Tensor::ones([2], FLOAT_CPU)).unwrap();
        // Infinity times 0 would be NaN.
        shared.fetch_sub_scaled(&Tensor::from_slice(&[0.0f32, 1.0]), f32::INFINITY);
        assert_eq!(shared.into_tensor(), Tensor::from_slice(&[1.0, f32::NEG_INFINITY]));
    }

    #[test]
    fn what_others_can_see_is_not_taken() {
        let tensor = Tensor::zeros([4], FLOAT_CPU);
        assert!(AtomicTensor::new(tensor.shallow_clone()).is_none());
    }

    #[test]
    #[should_panic(expected = "a step has a float for each element")]
    fn a_step_of_another_length_is_refused() {
        let shared = AtomicTensor::new(Tensor::zeros([4], FLOAT_CPU)).unwrap();
        shared.fetch_sub_scaled(&Tensor::zeros([5], FLOAT_CPU), 1.0);
    }
}
