//! Memory that whole parameters share: each block of a model needs it for a moment.

use c10d_sys::storage::Block;
use std::collections::HashMap;

/// Blocks of memory by size. What one parameter gives back, the next of its size takes: new memory
/// would cost a page fault per 4 KiB, and blocks that come and go would leave gaps in the heap.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// With the number of the pass that has given them back.
    blocks: HashMap<usize, Vec<(Block, u64)>>,
    pass: u64,
}

impl Pool {
    pub fn take(&mut self, bytes: usize) -> Option<Block> {
        Some(self.blocks.get_mut(&bytes)?.pop()?.0)
    }

    pub fn give_back(&mut self, block: Block) {
        self.blocks.entry(block.bytes()).or_default().push((block, self.pass));
    }

    /// Frees the blocks that nothing has used since the last call.
    pub fn end_pass(&mut self) {
        self.blocks.values_mut().for_each(|blocks| blocks.retain(|(_, pass)| *pass == self.pass));
        self.pass += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c10d_sys::storage::Memory;
    use tch::{Tensor, kind::FLOAT_CPU};

    fn block(numbers: i64) -> Block {
        let mut memory = Memory::of(&Tensor::ones([numbers], FLOAT_CPU));
        memory.free("sharded").unwrap().unwrap()
    }

    #[test]
    fn a_block_serves_those_of_its_size_and_goes_when_a_pass_has_not_used_it() {
        let mut pool = Pool::default();
        pool.give_back(block(4));
        pool.give_back(block(4));
        pool.give_back(block(5));
        assert!(pool.take(12).is_none());
        pool.end_pass();

        let one = pool.take(16).unwrap();
        assert_eq!(one.bytes(), 16);
        pool.give_back(one);
        pool.end_pass();
        assert!(pool.take(16).is_some());
        assert!(pool.take(16).is_none());
        assert!(pool.take(20).is_none());
    }
}
