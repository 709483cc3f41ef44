//! Synchronous updates by a ring all-reduce of our own.

use super::{Method, Steps};
use crate::link::{Link, Traffic};
use crate::ring::all_reduce;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

/// All ranks take the mean of their gradients, which go around a ring in chunks.
pub struct Ring {
    pub link: Link,
    pub lr: f64,
    pub steps: Steps,
}

impl Method for Ring {
    fn before_batch(&mut self, _theta: &mut Tensor) -> Result<ControlFlow<()>> {
        Ok(self.steps.take())
    }

    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, mut gradient: Tensor) -> Result<()> {
        all_reduce(&self.link, &mut gradient)?;
        *theta -= gradient * (self.lr / self.link.world_size() as f64);
        Ok(())
    }
    // ANCHOR_END: after_batch

    fn traffic(&self) -> Option<Traffic> {
        Some(self.link.traffic())
    }
}
