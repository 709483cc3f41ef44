//! How a network is trained: optimizer, schedule, precision.

use clap::{ValueEnum, value_parser};
use report::{CommHookArgs, Precision};
use std::ops::Range;
use tch::nn::VarStore;
use tch_parallel::optim::lr_scheduler::{CosineAnnealingLr, LinearLr, Schedule};
use tch_parallel::optim::lr_scheduler::{SequentialLr, StepLr};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions, ZeroRedundancyOptimizer};
use tch_parallel::{Error, Result, amp::GradScalerOptions, distributed::ProcessGroup};

#[derive(Debug, clap::Args)]
pub struct RecipeArgs {
    /// Number of passes over the training set.
    #[arg(long, default_value_t = 90, value_parser = value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Initial learning rate, or that after the warm-up.
    #[arg(long, default_value_t = 0.1, value_parser = not_negative)]
    pub lr: f64,
    /// Momentum.
    #[arg(long, default_value_t = 0.9, value_parser = not_negative)]
    momentum: f64,
    /// Weight decay (L2 penalty).
    #[arg(long, visible_alias = "wd", default_value_t = 1e-4, value_parser = not_negative)]
    weight_decay: f64,
    /// How the learning rate decays from epoch to epoch.
    #[arg(long, value_enum, default_value_t = Decay::Step)]
    schedule: Decay,
    /// Epochs of warm-up, in which the learning rate rises from a hundredth of --lr to --lr.
    #[arg(long, default_value_t = 0)]
    warmup_epochs: u64,
    /// Accumulate the gradients of N batches before each step; the ranks exchange them once.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    accumulate: u32,
    /// Train in mixed precision, with fp16 by a scaled loss.
    #[arg(long, value_enum)]
    pub amp: Option<Precision>,
    #[command(flatten)]
    pub comm_hook: CommHookArgs,
    /// Shard the optimizer's state over the ranks (ZeroRedundancyOptimizer).
    #[arg(long)]
    zero: bool,
}

/// How the learning rate decays from epoch to epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Decay {
    /// Divide by 10 every 30 epochs.
    Step,
    /// Follow half a cosine to 0 at the end.
    Cosine,
}

impl RecipeArgs {
    /// SGD, its state on every rank or sharded over the group.
    pub fn optimizer(
        &self,
        vs: &VarStore,
        group: Option<&ProcessGroup>,
    ) -> Result<Box<dyn Optimizer>> {
        let Self { lr, momentum, weight_decay, .. } = *self;
        let sgd = Sgd::new(vs, SgdOptions { lr, momentum, weight_decay, ..Default::default() })?;
        Ok(match group.filter(|_| self.zero) {
            None => Box::new(sgd),
            Some(group) => Box::new(ZeroRedundancyOptimizer::new(sgd, group)),
        })
    }

    /// The learning rate of every epoch. Refuses a warm-up as long as the training.
    pub fn schedule(&self) -> Result<Box<dyn Schedule>> {
        if self.warmup_epochs >= self.epochs {
            let expected = format!("less than --epochs, which is {}", self.epochs);
            return Err(Error::argument("--warmup-epochs", self.warmup_epochs, expected));
        }
        let decay: Box<dyn Schedule> = match self.schedule {
            Decay::Step => Box::new(StepLr::new(30)),
            Decay::Cosine => Box::new(CosineAnnealingLr::new(self.epochs - self.warmup_epochs)),
        };
        if self.warmup_epochs == 0 {
            return Ok(decay);
        }
        let (start_factor, total_iters) = (0.01, self.warmup_epochs);
        let warm_up = Box::new(LinearLr { start_factor, total_iters, ..Default::default() });
        let milestones = vec![self.warmup_epochs];
        Ok(Box::new(SequentialLr { schedules: vec![warm_up, decay], milestones }))
    }

    /// Only fp16 has too small a range for gradients that are not scaled.
    pub fn scaler(&self) -> GradScalerOptions {
        GradScalerOptions { enabled: self.amp == Some(Precision::Fp16), ..Default::default() }
    }

    /// The batches whose gradients accumulate with those of batch number `batch`. `batches` are those of the epoch, or
    /// what is left of it in a training that is resumed. The remainder at their end makes a step of its own.
    pub fn accumulated(&self, batch: usize, batches: Range<usize>) -> Range<usize> {
        let accumulate = self.accumulate as usize;
        let start = batch - (batch - batches.start) % accumulate;
        start..batches.end.min(start + accumulate)
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a finite number not below 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    #[test]
    fn gradients_add_up_in_groups_and_what_is_left_makes_a_step() {
        let groups = |accumulate: &str, batches: Range<usize>| -> Vec<_> {
            let recipe: RecipeArgs = parse_flags(["--accumulate", accumulate]).unwrap();
            batches.clone().map(|batch| recipe.accumulated(batch, batches.clone())).collect()
        };
        assert_eq!(groups("3", 0..5), [0..3, 0..3, 0..3, 3..5, 3..5]);
        // Resumed from a checkpoint that may have been saved with another number.
        assert_eq!(groups("2", 3..6), [3..5, 3..5, 5..6]);
    }
}
