//! Averaging parameters instead of gradients: `torch.distributed.algorithms.model_averaging`.

use crate::distributed::fsdp::shards;
use crate::distributed::group::ProcessGroup;
use crate::{Error, Result};
use c10d_sys::ReduceOp;
use c10d_sys::arithmetic::div_number_;
use tch::{Tensor, no_grad};

/// Averages parameters over the ranks every few steps, after a warm-up.
/// `averagers.PeriodicModelAverager`
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
    /// [`Error::Argument`] for a period of 0.
    pub fn new(group: &ProcessGroup, period: u64, warmup_steps: u64) -> Result<Self> {
        if period == 0 {
            return Err(Error::argument("period", period, "at least 1 step"));
        }
        Ok(PeriodicModelAverager { group: group.clone(), period, warmup_steps, step: 0 })
    }

    /// Counts a step and, if it is due, replaces the parameters that have a gradient by their means
    /// over the ranks. A collective of all ranks of the group, with parameters in the same order.
    ///
    /// # Errors
    /// Those of [every collective](ProcessGroup#errors); [`Error::Argument`] for shards of
    /// [`FullyShard`](crate::distributed::FullyShard), which are different parts of one model.
    pub fn average_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        if shards::group_of(parameters)?.is_some() {
            let expected = "the parameters of a whole model on each rank";
            return Err(Error::argument("parameters", "a list of shards of FullyShard", expected));
        }
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
    let parameters: Vec<_> =
        parameters.iter().filter(|parameter| parameter.grad().defined()).collect();
    if parameters.is_empty() {
        return Ok(());
    }
    no_grad(|| {
        let flat = parameters.iter().map(|parameter| parameter.f_reshape([-1]));
        let mut flat = Tensor::f_cat(&flat.collect::<Result<Vec<_>, _>>()?, 0)?;
        div_number_(&mut flat, group.world_size() as f64)?;
        group.all_reduce(&mut flat, ReduceOp::Sum)?;
        let sizes: Vec<_> = parameters.iter().map(|parameter| parameter.numel() as i64).collect();
        for (parameter, mean) in parameters.iter().zip(flat.f_split_with_sizes(sizes, 0)?) {
            parameter.shallow_clone().f_copy_(&mean.f_view_as(parameter)?)?;
        }
        Ok(())
    })
}
