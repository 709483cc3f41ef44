//! DiLoCo: local SGD with an outer optimizer, which turns many steps into one (Douillard 2023).

use crate::{args::rate, link::Link, methods::LocalSgdArgs, model, ring};
use tch::Tensor;
use tch_parallel::{Result, distributed::ProcessGroup};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  launch -n 4 async-update diloco --epochs 10 --period 125")]
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

/// The outer optimizer. Every rank has its own, all with the same state.
///
/// The library's counterpart is `DiLoCo`, which takes any optimizer, and can exchange a large model in fragments during
/// the training.
pub struct Outer {
    link: Link,
    lr: f64,
    momentum: f64,
    /// The global model, from which each rank made its own steps.
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
    /// The gradient is the global model minus the ranks' models, averaged.
    pub fn step(&mut self, theta: &mut Tensor) -> Result<()> {
        let mut gradient = (&self.global - &*theta) / self.link.group.world_size() as f64;
        ring::all_reduce(&self.link, &mut gradient)?;
        self.velocity = &self.velocity * self.momentum + &gradient;
        self.global -= (gradient + &self.velocity * self.momentum) * self.lr;
        theta.copy_(&self.global);
        Ok(())
    }
    // ANCHOR_END: step
}
