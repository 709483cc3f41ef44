//! A formula given as a function.

use super::group::{GroupRates, check_one_each};
use super::schedule::{Epoch, Schedule, check_factor};
use crate::Result;
use std::fmt::{self, Debug};

/// Multiplies the optimizer's initial rate by a function of the epoch. `LambdaLR(lr_lambda)`
///
/// As in PyTorch, the function is not part of the scheduler's state: make sure to resume with the
/// same one. If you implement [`Schedule`] instead, its settings are compared.
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{LambdaLr, LrScheduler};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let vs = tch::nn::VarStore::new(tch::Device::Cpu);
/// # let weight = vs.root().zeros("weight", &[3]);
/// # let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() })?;
///
/// // A warm-up of four epochs, then in proportion to 1 / sqrt(n).
/// let factor = |epoch: u64| {
///     let n = (epoch + 1) as f64;
///     n.min(8.0 / n.sqrt()) / 4.0
/// };
/// let mut scheduler = LrScheduler::new(&mut optimizer, LambdaLr::new(factor))?;
/// assert_eq!(optimizer.lr(), 0.5 * 0.25);
/// scheduler.step(&mut optimizer)?;
/// assert_eq!(optimizer.lr(), 0.5 * 0.5);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
pub struct LambdaLr {
    lr_lambdas: Lambdas,
}

enum Lambdas {
    All(Lambda),
    Each(Vec<Lambda>),
}

type Lambda = Box<dyn Fn(u64) -> f64 + Send>;

impl LambdaLr {
    /// A schedule with the rate `lr_lambda(epoch)` times the optimizer's initial rate; epochs count from 0.
    pub fn new(lr_lambda: impl Fn(u64) -> f64 + Send + 'static) -> Self {
        LambdaLr { lr_lambdas: Lambdas::All(Box::new(lr_lambda)) }
    }

    /// A function for each parameter group, in their order. `LambdaLR([lambda1, lambda2])`
    pub fn per_group(lr_lambdas: Vec<Box<dyn Fn(u64) -> f64 + Send>>) -> Self {
        LambdaLr { lr_lambdas: Lambdas::Each(lr_lambdas) }
    }

    fn factor(&self, epoch: u64, group: &GroupRates) -> f64 {
        match &self.lr_lambdas {
            Lambdas::All(lambda) => lambda(epoch),
            Lambdas::Each(lambdas) => lambdas[group.index](epoch),
        }
    }
}

/// Without the functions, which cannot be shown as text.
impl Debug for LambdaLr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LambdaLr").finish_non_exhaustive()
    }
}

impl Schedule for LambdaLr {
    /// Only for epoch 0, because any other may follow.
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        if let Lambdas::Each(lambdas) = &self.lr_lambdas {
            check_one_each("lr_lambda", lambdas.len(), groups.len())?;
        }
        groups.iter().try_for_each(|group| check_factor("lr_lambda(0)", self.factor(0, group)))
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        group.lr = group.base_lr() * self.factor(epoch.number(), group);
        Ok(())
    }
}
