//! The reuse of batches' memory.

use crate::Result;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};
use tch_parallel_base::lock;

/// More than loaders have in flight. Memory beyond that is freed.
const LIMIT: usize = 32;

/// Writes batches into the memory of earlier ones that have been dropped everywhere.
///
/// A batch of images is large: 64 of 224×224 pixels take 39 MB. The system would reclaim such memory at once and return
/// it page by page, filled with zeros: one sixth of the time of making a batch.
///
/// Beside each is the size that it was made with: whoever holds it may be changing it.
#[derive(Debug, Default)]
pub(super) struct BatchMemory(Mutex<Vec<(Vec<i64>, Tensor)>>);

impl BatchMemory {
    /// A tensor of 32-bit floats of this size, all of which `fill` writes.
    pub(super) fn tensor(&self, size: &[i64], fill: impl FnOnce(&mut [f32])) -> Result<Tensor> {
        let new = || {
            // The next batches are probably of this size: any other memory would lie idle.
            lock(&self.0).retain(|(of, _)| of == size);
            Tensor::f_zeros(size, (Kind::Float, Device::Cpu))
        };
        let mut tensor = self.unused(size).map_or_else(new, Ok)?;
        // A batch without images has no elements.
        if let Some(elements) = c10d_sys::tensor::get_mut(&mut tensor) {
            fill(elements);
        }
        let mut tensors = lock(&self.0);
        if tensors.len() == LIMIT {
            drop(tensors.remove(0));
        }
        tensors.push((size.to_vec(), tensor.shallow_clone()));
        Ok(tensor)
    }

    /// A tensor of this size that has no other handle, removed from this memory.
    fn unused(&self, size: &[i64]) -> Option<Tensor> {
        let mut tensors = lock(&self.0);
        // Whoever had it may have computed its gradient, too. Nothing is read of a tensor that others hold.
        let is_plain = |tensor: &Tensor| !tensor.requires_grad() && !tensor.grad().defined();
        tensors.retain_mut(|(_, tensor)| !is_free(tensor) || is_plain(tensor));
        let is_unused = |(_, tensor): &mut (_, Tensor)| {
            is_free(tensor) && tensor.size() == size && is_plain(tensor)
        };
        let position = tensors.iter_mut().position(is_unused)?;
        Some(tensors.swap_remove(position).1)
    }
}

/// Whether nobody else has a handle to a tensor.
fn is_free(tensor: &mut Tensor) -> bool {
    c10d_sys::tensor::get_mut(tensor).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_begins_without_the_gradient_of_an_earlier_one() {
        let memory = BatchMemory::default();
        for requires_grad in [true, false] {
            let batch = filled(&memory, 2, 1.0);
            assert!(!batch.requires_grad() && !batch.grad().defined());
            let batch = batch.set_requires_grad(true);
            batch.sum(tch::Kind::Float).backward();
            let _ = batch.set_requires_grad(requires_grad);
        }
        assert!(!filled(&memory, 2, 1.0).grad().defined());
    }

    fn filled(memory: &BatchMemory, len: i64, value: f32) -> Tensor {
        memory.tensor(&[len], |elements| elements.fill(value)).unwrap()
    }

    #[test]
    fn a_batch_that_was_dropped_makes_room_for_the_next_of_its_size() {
        let memory = BatchMemory::default();
        let first = filled(&memory, 4, 1.0);
        let address = first.data_ptr();
        drop(first);
        let second = filled(&memory, 4, 3.0);
        assert_eq!(second.data_ptr(), address);
        assert_eq!(second, Tensor::from_slice(&[3.0f32; 4]));
    }

    #[test]
    fn batches_of_another_size_are_given_back_when_a_new_one_is_made() {
        let memory = BatchMemory::default();
        let in_use = filled(&memory, 4, 1.0);
        drop(filled(&memory, 4, 2.0));
        drop(filled(&memory, 5, 3.0));
        let kept: Vec<_> =
            memory.0.lock().unwrap().iter().map(|(_, tensor)| tensor.size()).collect();
        assert_eq!(kept, [[5]]);
        assert_eq!(in_use, Tensor::from_slice(&[1.0f32; 4]));
    }

    #[test]
    fn a_batch_in_use_is_left_alone() {
        let memory = BatchMemory::default();
        let view = filled(&memory, 4, 1.0).narrow(0, 1, 2);
        let others: Vec<_> = (0..LIMIT + 3).map(|_| filled(&memory, 4, 2.0)).collect();
        assert_eq!(view, Tensor::from_slice(&[1.0f32; 2]));
        let mut addresses: Vec<_> = others.iter().map(Tensor::data_ptr).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), LIMIT + 3);
        assert_eq!(memory.0.lock().unwrap().len(), LIMIT);
    }
}
