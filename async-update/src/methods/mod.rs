//! The ways to train one model with the gradients of several workers.
//!
//! | file | method | who waits for whom | source |
//! |---|---|---|---|
//! | `synchronous` | [`SyncAllReduce`] | all for all | c10d's collective |
//! | | [`SyncPs`] | all for all, through rank 0 | the article's reducer |
//! | | [`Ring`] | all for all, through neighbours | the article's ring; Baidu 2017 |
//! | `local_sgd` | [`LocalSgd`] | all for all, now and then | Stich 2019; Lin 2020 |
//! | `async_ps` | [`AsyncPs`] | nobody for anybody | Downpour: Dean 2012 |
//! | | with [`Gate::Stale`](crate::server::Gate) | the fast for the slow, when they lead by too much | SSP: Ho 2013 |
//! | `easgd` | [`Easgd`] | nobody for anybody; all are tied to a centre | Zhang 2015 |
//! | `hogwild` | [`Hogwild`] | nobody; threads, not processes | Niu 2011 |

mod async_ps;
mod easgd;
mod hogwild;
mod local_sgd;
mod synchronous;

pub use async_ps::AsyncPs;
pub use easgd::Easgd;
pub use hogwild::{Hogwild, SharedModel};
pub use local_sgd::LocalSgd;
pub use synchronous::{Ring, SyncAllReduce, SyncPs};

use crate::link::Traffic;
use tch::Tensor;
use tch_parallel::Result;

// ANCHOR: method
/// What a worker does with its gradients, and where its parameters come from.
pub trait Method {
    /// Renews `theta` where the method does that now, and returns the number of batches to do before
    /// it is called again. 0 ends the training.
    fn next_batches(&mut self, theta: &mut Tensor) -> Result<usize>;

    /// After a batch: makes the update that the worker's gradient leads to.
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()>;

    /// After the last batch.
    fn end(&mut self, _theta: &mut Tensor) -> Result<()> {
        Ok(())
    }

    /// What this rank has sent and received for it. `None` if it exchanges nothing, or if a library's
    /// collective does, which cannot be counted.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}
// ANCHOR_END: method
