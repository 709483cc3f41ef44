//! DiLoCo: local SGD with an outer optimizer, which makes one step of many (Douillard 2023).

use super::local_sgd::LocalSgdArgs;
use crate::args::rate;
use crate::link::Link;
use crate::model;
use crate::ring;
use tch::Tensor;
use tch_parallel::Result;
use tch_parallel::distributed::ProcessGroup;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  launch -n 4 async-update diloco                            an outer step every 8 steps
  launch -n 4 async-update diloco --epochs 10 --period 125   and how few bytes rank 0 has sent")]
pub struct DiLoCoArgs {
    /// Learning rate of the outer optimizer.
    #[arg(long, default_value_t = 0.7, allow_negative_numbers = true, value_parser = rate)]
    outer_lr: f64,
    /// Nesterov momentum of the outer optimizer.
    #[arg(long, default_value_t = 0.9)]
    outer_momentum: f64,
    #[command(flatten)]
    pub local: LocalSgdArgs,
}

/// The outer optimizer. Every rank has its own, and all hold the same.
///
/// The library's counterpart is `DiLoCo`, which takes any optimizer, and exchanges a large model in fragments while the
/// training goes on.
pub struct Outer {
    link: Link,
    lr: f64,
    momentum: f64,
    /// The model of all ranks, from which each has gone its own way.
    global: Tensor,
    velocity: Tensor,
}

impl Outer {
    pub fn new(group: ProcessGroup, args: &DiLoCoArgs) -> anyhow::Result<Outer> {
        let global = model::initial_parameters(args.local.train.seed);
        let (link, velocity) = (Link::between_ranks(group)?, model::zeros());
        Ok(Outer { link, lr: args.outer_lr, momentum: args.outer_momentum, global, velocity })
    }

    // ANCHOR: step
    /// The gradient is how far the ranks have gone, on average.
    pub fn step(&mut self, theta: &mut Tensor) -> Result<()> {
        let mut gradient = &self.global - &*theta;
        ring::all_reduce(&self.link, &mut gradient)?;
        gradient /= self.link.group.world_size() as f64;
        self.velocity = &self.velocity * self.momentum + &gradient;
        self.global -= (gradient + &self.velocity * self.momentum) * self.lr;
        theta.copy_(&self.global);
        Ok(())
    }
    // ANCHOR_END: step
}
