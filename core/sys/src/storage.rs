//! Freeing the memory of tensors and allocating it again.

use crate::arguments::{c_text, pointer};
use crate::error::check;
use crate::{Error, ffi};
use tch::Tensor;

/// The memory of a tensor and of all views of it, including those that autograd has saved. While it
/// is freed, they keep their shapes, and reading or writing them is an error.
#[derive(Debug)]
pub struct Memory {
    tensor: Tensor,
    /// The number of bytes that were freed.
    freed: Option<usize>,
}

impl Memory {
    /// The memory of this tensor. A collective in progress keeps it alive.
    pub fn of(tensor: &Tensor) -> Memory {
        Memory { tensor: tensor.shallow_clone(), freed: None }
    }

    /// Whether it is allocated.
    pub fn is_allocated(&self) -> bool {
        self.freed.is_none()
    }

    /// Frees the memory: `storage.resize_(0)`. Reading or writing one of the tensors then returns
    /// `message` as an error. Freeing it through a second handle is an error too.
    pub fn free(&mut self, message: &str) -> Result<(), Error> {
        if self.freed.is_none() {
            let (message, mut bytes) = (c_text(message)?, 0);
            // SAFETY: tensor and message live through the call, which writes a number.
            check(unsafe {
                ffi::c10d_free_storage(pointer(&self.tensor), message.as_ptr(), &mut bytes)
            })?;
            self.freed = Some(bytes);
        }
        Ok(())
    }

    /// Allocates the memory again, with undefined contents. Version counters do not change, so
    /// autograd does not notice.
    pub fn allocate(&mut self) -> Result<(), Error> {
        if let Some(bytes) = self.freed {
            // SAFETY: the tensor lives through the call, which refuses memory that is not freed. The
            // new one is not shorter than what its views were made for.
            check(unsafe { ffi::c10d_allocate_storage(pointer(&self.tensor), bytes) })?;
            self.freed = None;
        }
        Ok(())
    }
}

/// The number of in-place changes of a tensor and its views: `tensor._version`.
pub fn version(tensor: &Tensor) -> i64 {
    // SAFETY: the tensor lives through the call, which only reads.
    unsafe { ffi::c10d_version(pointer(tensor)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

    use super::*;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn while_a_tensors_memory_is_freed_every_use_of_it_is_an_error_that_says_why() {
        let tensor = Tensor::ones([3, 4], FLOAT_CPU);
        let row = tensor.get(1);
        let mut memory = Memory::of(&tensor);
        memory.free("h.3.weight is sharded").unwrap();
        assert!(!memory.is_allocated());
        assert_eq!(row.size(), [4]);
        let uses = [
            row.f_sum(tch::Kind::Float).map(drop),
            tensor.f_add(&tensor).map(drop),
            tensor.f_equal(&Tensor::ones([3, 4], FLOAT_CPU)).map(drop),
            row.shallow_clone().f_copy_(&Tensor::ones([4], FLOAT_CPU)),
            tensor.shallow_clone().f_zero_().map(drop),
            tensor.f_matmul(&Tensor::ones([4, 2], FLOAT_CPU)).map(drop),
        ];
        for used in uses {
            let error = used.unwrap_err().to_string();
            assert!(error.contains("h.3.weight is sharded"), "{error}");
        }
    }

    #[test]
    fn memory_is_freed_once_and_only_by_whom_it_belongs_to() {
        let tensor = Tensor::ones([3], FLOAT_CPU);
        let mut handles = [(); 2].map(|()| Memory::of(&tensor));
        handles[0].free("freed").unwrap();
        let error = handles[1].free("freed").unwrap_err();
        assert!(error.message().contains("already been freed"), "{error}");
        handles[1].allocate().unwrap();
        assert!(tensor.f_sum(tch::Kind::Float).is_err());
        handles[0].allocate().unwrap();
        assert!(tensor.f_sum(tch::Kind::Float).is_ok());
    }

    #[test]
    fn memory_that_is_back_is_that_of_all_views_and_no_version_has_changed() {
        let tensor = Tensor::ones([3, 4], FLOAT_CPU);
        let row = tensor.get(1);
        let mut memory = Memory::of(&tensor);
        for value in [2.0, 3.0] {
            let before = version(&tensor);
            memory.free("freed").unwrap();
            memory.allocate().unwrap();
            assert!(memory.is_allocated());
            assert_eq!(version(&tensor), before);
            let _ = tensor.detach().fill_(value);
            assert_eq!(row, Tensor::full([4], value, FLOAT_CPU));
        }
    }
}
