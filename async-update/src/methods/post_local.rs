//! Post-local SGD: in step at the beginning, local later (Lin 2020).

use super::{LocalSgd, Method, SyncAllReduce};
use crate::link::Traffic;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

/// The first `start` steps are those of [`SyncAllReduce`], all others those of [`LocalSgd`]: far
/// from a minimum the ranks' ways part quickly, close to it their mean is a good place.
///
/// PyTorch's counterpart is `post_localSGD_hook` with `start_localSGD_iter`.
pub struct PostLocal {
    pub together: SyncAllReduce,
    pub local: LocalSgd,
    /// Whether `together` has no more steps.
    pub has_parted: bool,
}

impl Method for PostLocal {
    fn before_batch(&mut self, theta: &mut Tensor) -> Result<ControlFlow<()>> {
        if !self.has_parted && self.together.before_batch(theta)?.is_continue() {
            return Ok(ControlFlow::Continue(()));
        }
        self.has_parted = true;
        self.local.before_batch(theta)
    }

    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        match self.has_parted {
            false => self.together.after_batch(theta, gradient),
            true => self.local.after_batch(theta, gradient),
        }
    }

    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
