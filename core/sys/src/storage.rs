//! Freeing the memory of tensors and allocating it again.

use crate::{Result, ffi};
use crate::{arguments::c_text, arguments::pointer, error::check, ffi::Text, owned::Owned};
use std::ptr::null_mut;
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
    /// The memory of this tensor. A collective in progress on the CPU keeps it alive; one of NCCL's must
    /// have been waited for before it is freed.
    pub fn of(tensor: &Tensor) -> Memory {
        Memory { tensor: tensor.shallow_clone(), freed: None }
    }

    /// The number of bytes that were freed; `None` while it is allocated.
    pub fn freed(&self) -> Option<usize> {
        self.freed
    }

    /// Frees the memory: `storage.resize_(0)`. Reading or writing one of the tensors then returns
    /// `message` as an error. Freeing it through a second handle is an error too.
    ///
    /// Returns the memory, which is gone once that is dropped, unless it is a GPU's or a collective in
    /// progress uses it.
    pub fn free(&mut self, message: &str) -> Result<Option<Block>> {
        if self.freed.is_some() {
            return Ok(None);
        }
        let (message, mut bytes, mut memory) = (c_text(message)?, 0, null_mut());
        let (tensor, message) = (pointer(&self.tensor), Text::new(&message));
        check(ffi::c10d_free_storage(tensor, message, &mut bytes, &mut memory))?;
        self.freed = Some(bytes);
        // SAFETY: the call has made it and given up ownership of it, or it is null.
        Ok(unsafe { Owned::new(memory) }.map(|memory| Block { memory, bytes }))
    }

    /// Allocates the memory again, with undefined contents, in `block` if that is of the
    /// [right size](Self::freed). Version counters do not change, so autograd does not notice.
    pub fn allocate(&mut self, block: Option<Block>) -> Result<()> {
        let Some(bytes) = self.freed else { return Ok(()) };
        let block = block.filter(|block| block.bytes == bytes);
        let from = block.as_ref().map(|block| &*block.memory);
        check(ffi::c10d_allocate_storage(pointer(&self.tensor), bytes, from))?;
        self.freed = None;
        Ok(())
    }
}

/// Memory on the CPU that no tensor has.
#[derive(Debug)]
pub struct Block {
    memory: Owned<ffi::Memory>,
    bytes: usize,
}

impl Block {
    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

// SAFETY: nothing else refers to the memory, which any thread may free.
unsafe impl Send for Block {}

/// The number of in-place changes of a tensor and its views: `tensor._version`.
pub fn version(tensor: &Tensor) -> i64 {
    ffi::c10d_version(pointer(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::kind::FLOAT_CPU;

    #[test]
    fn while_a_tensors_memory_is_freed_every_use_of_it_is_an_error_that_says_why() {
        let tensor = Tensor::ones([3, 4], FLOAT_CPU);
        let row = tensor.get(1);
        let mut memory = Memory::of(&tensor);
        drop(memory.free("h.3.weight is sharded").unwrap());
        assert_eq!(memory.freed(), Some(48));
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
        drop(handles[0].free("freed").unwrap());
        let error = handles[1].free("freed").unwrap_err();
        assert!(error.message().contains("already been freed"), "{error}");
        handles[1].allocate(None).unwrap();
        assert!(tensor.f_sum(tch::Kind::Float).is_err());
        handles[0].allocate(None).unwrap();
        assert!(tensor.f_sum(tch::Kind::Float).is_ok());
    }

    #[test]
    fn memory_that_is_back_is_that_of_all_views_and_no_version_has_changed() {
        let tensor = Tensor::ones([3, 4], FLOAT_CPU);
        let row = tensor.get(1);
        let mut memory = Memory::of(&tensor);
        for value in [2.0, 3.0] {
            let before = version(&tensor);
            let block = memory.free("freed").unwrap();
            memory.allocate(block).unwrap();
            assert_eq!(memory.freed(), None);
            assert_eq!(version(&tensor), before);
            let _ = tensor.detach().fill_(value);
            assert_eq!(row, Tensor::full([4], value, FLOAT_CPU));
        }
    }
    #[test]
    fn the_memory_of_one_tensor_serves_another_of_its_size() {
        let tensors = [3, 3, 4].map(|length| Tensor::ones([length], FLOAT_CPU));
        let mut memories = tensors.each_ref().map(Memory::of);
        let blocks = memories.each_mut().map(|memory| memory.free("freed").unwrap());
        let [first, second, third] = blocks;
        drop(second);
        memories[1].allocate(first).unwrap();
        memories[0].allocate(third).unwrap();
        for tensor in &tensors[..2] {
            let _ = tensor.shallow_clone().fill_(5.0);
            assert_eq!(tensor, &Tensor::full([3], 5.0, FLOAT_CPU));
        }
        assert_ne!(tensors[0].data_ptr(), tensors[1].data_ptr());
    }
}
