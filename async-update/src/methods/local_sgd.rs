//! Local SGD: every rank makes its own steps, and now and then all average their parameters (Stich
//! 2019). Post-local SGD: the same, after a synchronous beginning (Lin 2020).

use super::{Method, SyncAllReduce, diloco::DiLoCoArgs, diloco::Outer};
use crate::{args::TrainArgs, training::synchronous};
use std::num::NonZeroUsize;
use tch::Tensor;
use tch_parallel::{Result, distributed::ReduceOp};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update local-sgd               the mean of the parameters every 8 steps
  launch -n 4 async-update local-sgd --period 64   an eighth of the messages")]
pub struct LocalSgdArgs {
    /// Steps that each rank takes on its own between two averages.
    #[arg(long, default_value = "8")]
    pub period: NonZeroUsize,
    #[command(flatten)]
    pub train: TrainArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  launch -n 4 async-update post-local --start 50 --period 8")]
pub struct PostLocalArgs {
    /// Synchronous steps at the beginning.
    #[arg(long, default_value_t = 50)]
    pub start: usize,
    #[command(flatten)]
    pub local: LocalSgdArgs,
}

/// Trains with local SGD, after `start` steps that all ranks make together; with an outer optimizer it is DiLoCo.
pub fn local_sgd(
    name: &str,
    args: &LocalSgdArgs,
    start: usize,
    outer: Option<&DiLoCoArgs>,
) -> anyhow::Result<()> {
    synchronous(name, &args.train, |group, steps| {
        let first = start.min(steps);
        let updates = first + (steps - first) * group.world_size();
        let outer = outer.map(|args| Outer::new(group.clone(), args)).transpose()?;
        let together = SyncAllReduce { group, lr: args.train.lr };
        Ok((LocalSgd { together, start, period: args.period, since_mean: 0, outer }, updates))
    })
}

/// Each rank steps along its own gradient; after every `period` steps all take the mean of their
/// parameters. With a period of 1 that is the mean of the gradients, up to rounding.
///
/// PyTorch's counterparts are `PeriodicModelAverager` and `post_localSGD_hook`.
struct LocalSgd {
    /// How steps are made together.
    together: SyncAllReduce,
    /// How many steps are still made together: far from a minimum the ranks' ways part quickly,
    /// close to it their mean is a good place.
    start: usize,
    period: NonZeroUsize,
    /// Steps since the last mean.
    since_mean: usize,
    /// What DiLoCo makes of the mean.
    outer: Option<Outer>,
}

impl Method for LocalSgd {
    // ANCHOR: after_batch
    fn after_batch(&mut self, theta: &mut Tensor, gradient: Tensor) -> Result<()> {
        if self.start > 0 {
            self.start -= 1;
            return self.together.after_batch(theta, gradient);
        }
        *theta -= gradient * self.together.lr;
        self.since_mean += 1;
        if self.since_mean == self.period.get() { self.average(theta) } else { Ok(()) }
    }
    // ANCHOR_END: after_batch

    /// All ranks end with one model, even if the last period is cut short.
    fn end(&mut self, theta: &mut Tensor) -> Result<()> {
        if self.since_mean > 0 { self.average(theta) } else { Ok(()) }
    }
}

impl LocalSgd {
    fn average(&mut self, theta: &mut Tensor) -> Result<()> {
        self.since_mean = 0;
        if let Some(outer) = &mut self.outer {
            return outer.step(theta);
        }
        let group = &self.together.group;
        group.all_reduce(theta, ReduceOp::Sum)?;
        *theta /= group.world_size() as f64;
        Ok(())
    }
}
