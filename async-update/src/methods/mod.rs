//! The ways to train one model with the gradients of several workers, each with its flags.
//!
//! | file | method | who waits for whom | source |
//! |---|---|---|---|
//! | `synchronous` | [`SyncAllReduce`] | all for all | c10d's collective |
//! | | [`SyncPs`] | all for all, through rank 0 | the article's reducer |
//! | | [`Ring`] | all for all, through neighbours | the article's ring; Baidu 2017 |
//! | `local_sgd` | [`LocalSgd`] | all for all, now and then | Stich 2019; Lin 2020 |
//! | `diloco` | [`Outer`](diloco::Outer) | the same, with a step of an outer optimizer | Douillard 2023 |
//! | `async_ps` | [`AsyncPs`] | nobody for anybody | Downpour: Dean 2012 |
//! | | with [`Gate::Stale`](crate::server::Gate) | the fast for the slow, when they lead by too much | SSP: Ho 2013 |
//! | `easgd` | [`Easgd`] | nobody for anybody; all are tied to a centre | Zhang 2015 |
//! | `hogwild` | [`Hogwild`] | nobody; threads, not processes | Niu 2011 |

mod async_ps;
pub mod diloco;
mod easgd;
mod hogwild;
mod local_sgd;
mod synchronous;

pub use async_ps::{AsyncPs, AsyncPsArgs, SspArgs};
pub use easgd::{Easgd, EasgdArgs};
pub use hogwild::{HOGWILD, HogwildArgs, hogwild};
pub use local_sgd::{LocalSgdArgs, PostLocalArgs, local_sgd};
pub use synchronous::{Ring, SyncAllReduce, SyncPs};

use tch::Tensor;
use tch_parallel::Result;

// ANCHOR: method
/// What a worker does with its gradients, and where its parameters come from.
pub trait Method {
    /// Renews `theta` where the method does that now, and returns the number of batches to do before
    /// it is called again; 0 ends the training. `left` is what is left of an equal share of all
    /// batches; methods that hand batches out to whoever asks ignore it.
    fn next_batches(&mut self, _theta: &mut Tensor, left: usize) -> Result<usize> {
        Ok(left)
    }

    /// After a batch: makes the update that the worker's gradient leads to.
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()>;

    /// After the last batch.
    fn end(&mut self, _theta: &mut Tensor) -> Result<()> {
        Ok(())
    }
}
// ANCHOR_END: method
