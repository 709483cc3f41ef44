//! Synchronous updates: in every step all ranks wait for the gradients of all, and make one update
//! with their mean. Three ways to find it.

use super::Method;
use crate::{link::Link, ring};
use tch::Tensor;
use tch_parallel::{Result, distributed::ProcessGroup, distributed::ReduceOp};

/// By c10d's all-reduce: what DistributedDataParallel does, in one bucket.
pub struct SyncAllReduce {
    pub group: ProcessGroup,
    pub lr: f64,
}

impl Method for SyncAllReduce {
    // ANCHOR: sync_allreduce
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        self.group.all_reduce(&mut gradient, ReduceOp::Sum)?;
        *theta -= gradient * (self.lr / self.group.world_size() as f64);
        Ok(())
    }
    // ANCHOR_END: sync_allreduce
}

/// Through a parameter server, which is rank 0 and trains as well. It adds all gradients up, makes
/// the update, and sends everybody the new model: 2K(N − 1) bytes go through it, where K is the size
/// of the model and N the number of ranks.
pub struct SyncPs {
    pub link: Link,
    pub lr: f64,
}

impl Method for SyncPs {
    // ANCHOR: sync_ps
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        let (link, workers) = (&self.link, 1..self.link.group.world_size());
        if link.group.rank() != 0 {
            link.send(&gradient, 0)?;
            return link.recv(theta, 0);
        }
        let mut theirs = gradient.empty_like();
        for worker in workers.clone() {
            link.recv(&mut theirs, worker)?;
            gradient += &theirs;
        }
        *theta -= gradient * (self.lr / link.group.world_size() as f64);
        workers.into_iter().try_for_each(|worker| link.send(theta, worker))
    }
    // ANCHOR_END: sync_ps
}

/// By a ring all-reduce of our own: gradients go around a ring in chunks.
pub struct Ring {
    pub link: Link,
    pub lr: f64,
}

impl Method for Ring {
    // ANCHOR: ring
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        ring::all_reduce(&self.link, &mut gradient)?;
        *theta -= gradient * (self.lr / self.link.group.world_size() as f64);
        Ok(())
    }
    // ANCHOR_END: ring
}
