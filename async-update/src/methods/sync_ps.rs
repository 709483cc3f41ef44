//! Synchronous updates through a parameter server, which is rank 0 and trains as well.

use super::{Method, Steps};
use crate::link::{Link, Traffic};
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

/// Rank 0 adds all gradients up, makes the update, and sends everybody the new model: 2K(N − 1)
/// bytes go through it, where K is the size of the model and N the number of ranks.
pub struct SyncPs {
    pub link: Link,
    pub lr: f64,
    pub steps: Steps,
}

impl Method for SyncPs {
    fn before_batch(&mut self, _theta: &mut Tensor) -> Result<ControlFlow<()>> {
        Ok(self.steps.take())
    }

    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        let (link, workers) = (&self.link, 1..self.link.world_size());
        if link.rank() != 0 {
            link.send(&gradient, 0)?;
            return link.recv(theta, 0);
        }
        let mut theirs = gradient.empty_like();
        for worker in workers.clone() {
            link.recv(&mut theirs, worker)?;
            gradient += &theirs;
        }
        *theta -= gradient * (self.lr / link.world_size() as f64);
        workers.into_iter().try_for_each(|worker| link.send(theta, worker))
    }
    // ANCHOR_END: after_batch

    fn traffic(&self) -> Option<Traffic> {
        Some(self.link.traffic())
    }
}
