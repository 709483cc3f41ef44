//! Averaging parameters instead of gradients: `torch.distributed.algorithms.model_averaging`.

use crate::distributed::collectives::{Pending, copy_back, flatten};
use crate::distributed::{fsdp::shards, group::ProcessGroup};
use crate::{Result, check};
use c10d_sys::{ReduceOp, arithmetic::div_number_};
use tch::Tensor;

/// Averages parameters over the ranks every few steps, after a warm-up. `averagers.PeriodicModelAverager`
#[derive(Debug)]
pub struct PeriodicModelAverager {
    pub(crate) group: ProcessGroup,
    period: u64,
    warmup_steps: u64,
    pub(crate) step: u64,
}

impl PeriodicModelAverager {
    /// Averages in step `warmup_steps`, counted from 0, and then in every `period`-th step.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a period of 0.
    pub fn new(group: &ProcessGroup, period: u64, warmup_steps: u64) -> Result<Self> {
        check(period > 0, "period", period, "at least 1 step")?;
        Ok(PeriodicModelAverager { group: group.clone(), period, warmup_steps, step: 0 })
    }

    /// Counts a step and, if it is due, replaces the parameters that have a gradient by their means
    /// over the ranks. A collective of all ranks of the group, with parameters in the same order.
    ///
    /// # Errors
    /// Those of [every collective](ProcessGroup#errors); [`Error::Argument`](crate::Error::Argument) if no parameter has a
    /// gradient, and for shards of [`FullyShard`](crate::distributed::FullyShard), which are different parts of one model.
    pub fn average_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        let is_whole = shards::group_of(parameters)?.is_none();
        let expected = "the parameters of a whole model on each rank";
        check(is_whole, "parameters", "a list of shards of FullyShard", expected)?;
        self.group.refuse_in_join("average_parameters")?;
        let local_steps = self.step.checked_sub(self.warmup_steps);
        self.step += 1;
        match local_steps {
            Some(steps) if steps % self.period == 0 => average_parameters(&self.group, parameters),
            _ => Ok(()),
        }
    }
}

/// `utils.average_parameters_or_parameter_groups`
fn average_parameters(group: &ProcessGroup, parameters: &[Tensor]) -> Result<()> {
    let with_gradient = parameters.iter().filter(|parameter| parameter.grad().defined());
    let parameters: Vec<_> = with_gradient.map(Tensor::shallow_clone).collect();
    let expected = "one with gradients: average before zero_grad";
    let found = "a list without a gradient";
    group.or_report(check(!parameters.is_empty(), "parameters", found, expected))?;
    copy_back(&parameters, &start_mean(group, &parameters)?.wait()?)
}

/// Starts to average tensors, which must be in the same order on all ranks: one flat mean of all. A collective.
pub(crate) fn start_mean(group: &ProcessGroup, tensors: &[Tensor]) -> Result<Pending<Tensor>> {
    let mut flat = flatten(tensors)?;
    div_number_(&mut flat, group.world_size() as f64)?;
    group.all_reduce_async(flat, ReduceOp::Sum)
}
