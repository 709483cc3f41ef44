//! Formulas given as functions.

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
/// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 0.5, ..Default::default() })?;
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
#[derive(Debug)]
pub struct LambdaLr {
    lr_lambda: Lambdas,
}

impl LambdaLr {
    /// A schedule with the rate `lr_lambda(epoch)` times the optimizer's initial rate; epochs count from 0.
    pub fn new(lr_lambda: impl Fn(u64) -> f64 + Send + 'static) -> Self {
        LambdaLr { lr_lambda: Lambdas::All(Box::new(lr_lambda)) }
    }

    /// A function for each parameter group, in their order. `LambdaLR([lambda1, lambda2])`
    pub fn per_group(lr_lambda: Vec<LrLambda>) -> Self {
        LambdaLr { lr_lambda: Lambdas::Each(lr_lambda) }
    }
}

impl Schedule for LambdaLr {
    /// Only for epoch 0, because any other may follow.
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        self.lr_lambda.check(groups)?;
        let factor = |group| check_factor("lr_lambda(0)", self.lr_lambda.factor(0, group));
        groups.iter().try_for_each(factor)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        group.lr = group.base_lr() * self.lr_lambda.factor(epoch.number(), group);
        Ok(())
    }
}

/// Multiplies the learning rate by a function of the epoch, from epoch 1 on. `MultiplicativeLR(lr_lambda)`
///
/// Like [`LambdaLr`]'s, the function is not part of the scheduler's state.
///
/// ```
/// use tch_parallel::optim::lr_scheduler::{LrScheduler, MultiplicativeLr};
/// # use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
/// # let mut optimizer = Sgd::from_named_parameters(vec![], SgdOptions { lr: 0.5, ..Default::default() })?;
///
/// let factor = |epoch: u64| if epoch.is_multiple_of(2) { 0.5 } else { 1.0 };
/// let mut scheduler = LrScheduler::new(&mut optimizer, MultiplicativeLr::new(factor))?;
/// for _epoch in 0..4 {
///     scheduler.step(&mut optimizer)?;
/// }
/// assert_eq!(optimizer.lr(), 0.125);
/// # Ok::<(), tch_parallel::Error>(())
/// ```
#[derive(Debug)]
pub struct MultiplicativeLr {
    lr_lambda: Lambdas,
}

impl MultiplicativeLr {
    /// A schedule that multiplies the rate of the previous epoch by `lr_lambda(epoch)`.
    pub fn new(lr_lambda: impl Fn(u64) -> f64 + Send + 'static) -> Self {
        MultiplicativeLr { lr_lambda: Lambdas::All(Box::new(lr_lambda)) }
    }

    /// A function for each parameter group, in their order. `MultiplicativeLR([lambda1, lambda2])`
    pub fn per_group(lr_lambda: Vec<LrLambda>) -> Self {
        MultiplicativeLr { lr_lambda: Lambdas::Each(lr_lambda) }
    }
}

impl Schedule for MultiplicativeLr {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        self.lr_lambda.check(groups)
    }

    fn step(&self, epoch: Epoch, group: &mut GroupRates) -> Result<()> {
        if epoch.number() > 0 {
            group.lr *= self.lr_lambda.factor(epoch.number(), group);
        }
        Ok(())
    }

    /// From the rate of the previous schedule.
    fn restart(&self, group: &mut GroupRates) -> Result<()> {
        group.lr *= self.lr_lambda.factor(0, group);
        Ok(())
    }
}

/// A function of the epoch.
pub type LrLambda = Box<dyn Fn(u64) -> f64 + Send>;

enum Lambdas {
    All(LrLambda),
    Each(Vec<LrLambda>),
}

impl Lambdas {
    fn check(&self, groups: &[GroupRates]) -> Result<()> {
        match self {
            Lambdas::All(_) => Ok(()),
            Lambdas::Each(each) => check_one_each("lr_lambda", each.len(), groups.len()),
        }
    }

    fn factor(&self, epoch: u64, group: &GroupRates) -> f64 {
        match self {
            Lambdas::All(lambda) => lambda(epoch),
            Lambdas::Each(lambdas) => lambdas[group.index](epoch),
        }
    }
}

/// Without the functions, which cannot be shown as text.
impl Debug for Lambdas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
