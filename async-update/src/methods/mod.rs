//! The ways to make one model of several workers' gradients.
//!
//! | file | who waits for whom | source |
//! |---|---|---|
//! | `sync_allreduce` | all for all | c10d's collective |
//! | `sync_ps` | all for all, through rank 0 | the article's reducer |
//! | `ring` | all for all, through neighbours | the article's ring; Baidu 2017 |
//! | `local_sgd` | all for all, now and then | Stich 2019 |
//! | `post_local` | all for all, first always, then now and then | Lin 2020 |
//! | `async_ps` | nobody for anybody | Downpour: Dean 2012 |
//! | `ssp` | the fast for the slow, when they lead by too much | Ho 2013 |
//! | `easgd` | nobody for anybody; all are tied to a centre | Zhang 2015 |
//! | `hogwild` | nobody; threads, not processes | Niu 2011 |

mod async_ps;
mod easgd;
mod hogwild;
mod local_sgd;
mod post_local;
mod ring;
mod ssp;
mod sync_allreduce;
mod sync_ps;

pub use async_ps::AsyncPs;
pub use easgd::Easgd;
pub use hogwild::{Hogwild, SharedModel};
pub use local_sgd::LocalSgd;
pub use post_local::PostLocal;
pub use ring::Ring;
pub use ssp::{ssp, ssp_gate};
pub use sync_allreduce::SyncAllReduce;
pub use sync_ps::SyncPs;

use crate::link::Traffic;
use std::ops::ControlFlow;
use tch::Tensor;
use tch_parallel::Result;

// ANCHOR: method
/// What a worker does with its gradients, and where its parameters come from.
pub trait Method {
    /// Before a batch: renews `theta` where the method does that now, and says whether there is
    /// another batch to do.
    fn before_batch(&mut self, theta: &mut Tensor) -> Result<ControlFlow<()>>;

    /// After a batch: makes the update that the worker's gradient leads to.
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()>;

    /// What this rank has sent and received for it. `None` where a library's collective did it unseen.
    fn traffic(&self) -> Option<Traffic>;
}
// ANCHOR_END: method

/// The steps that ranks take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    left: usize,
}

impl Steps {
    pub fn new(number: usize) -> Steps {
        Steps { left: number }
    }

    /// How many there are left.
    pub fn number(self) -> usize {
        self.left
    }

    /// The first `number` of them, and the others.
    pub fn split(self, number: usize) -> (Steps, Steps) {
        let first = self.left.min(number);
        (Steps { left: first }, Steps { left: self.left - first })
    }

    /// Whether there is another step, which is counted.
    pub fn take(&mut self) -> ControlFlow<()> {
        match self.left.checked_sub(1) {
            None => ControlFlow::Break(()),
            Some(left) => {
                self.left = left;
                ControlFlow::Continue(())
            }
        }
    }
}
