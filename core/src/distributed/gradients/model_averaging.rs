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
    /// The groups and their periods. If several are due, the last one averages.
    levels: Vec<(u64, ProcessGroup)>,
    /// The step from which the periods count.
    origin: u64,
    warmup_steps: u64,
    pub(crate) step: u64,
}

impl PeriodicModelAverager {
    /// Averages in step `warmup_steps`, counted from 0, and then in every `period`-th step.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for a period of 0.
    pub fn new(group: &ProcessGroup, period: u64, warmup_steps: u64) -> Result<Self> {
        Self::with_levels(group, vec![(period, group.clone())], warmup_steps, warmup_steps)
    }

    /// Averages often within small groups of neighbouring ranks, and less often within larger ones. `levels` lists the
    /// period and size of each kind of group; the last is the whole group. From step `warmup_steps` on, counted from 0,
    /// a step that is a multiple of a period averages; if of several, the last of them counts. A collective.
    /// `hierarchical_model_averager.HierarchicalModelAverager`
    ///
    /// ```
    /// # use tch_parallel::distributed::{PeriodicModelAverager, ProcessGroup, average_parameters};
    /// let group = ProcessGroup::from_env()?;
    /// let levels = [(4, group.local_world_size()), (16, group.world_size())];
    /// let averager = PeriodicModelAverager::hierarchical(&group, &levels, 100)?;
    /// average_parameters(&[tch::Tensor::from(1.0)], &group)?; // at once, without an averager
    /// # Ok::<(), tch_parallel::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ProcessGroup::new_subgroups`], and [`Error::Argument`](crate::Error::Argument) for a period of 0 or a
    /// last level that is not the whole group.
    #[doc(alias = "HierarchicalModelAverager")]
    pub fn hierarchical(
        group: &ProcessGroup,
        levels: &[(u64, usize)],
        warmup_steps: u64,
    ) -> Result<Self> {
        let is_whole = levels.last().is_some_and(|(_, size)| *size == group.world_size());
        let expected = format!("a list whose last level has all {} ranks", group.world_size());
        check(is_whole, "levels", format_args!("{levels:?}"), expected)?;
        let group_of = |&(period, size)| match size == group.world_size() {
            true => Ok((period, group.clone())),
            false => Ok((period, group.new_subgroups(size)?)),
        };
        let levels = levels.iter().map(group_of).collect::<Result<_>>()?;
        Self::with_levels(group, levels, 0, warmup_steps)
    }

    fn with_levels(
        group: &ProcessGroup,
        levels: Vec<(u64, ProcessGroup)>,
        origin: u64,
        warmup_steps: u64,
    ) -> Result<Self> {
        check(levels.iter().all(|(period, _)| *period > 0), "period", 0, "at least 1 step")?;
        Ok(PeriodicModelAverager { group: group.clone(), levels, origin, warmup_steps, step: 0 })
    }

    /// Counts a step and, if it is due, replaces the parameters that have a gradient by their means
    /// over the ranks. A collective of all ranks of the group, with parameters in the same order.
    ///
    /// # Errors
    /// Those of [every collective](ProcessGroup#errors); [`Error::Argument`](crate::Error::Argument), in a step that
    /// averages, if no parameter has a gradient, and for shards of [`FullyShard`](crate::distributed::FullyShard).
    pub fn average_parameters(&mut self, parameters: &[Tensor]) -> Result<()> {
        self.group.refuse_in_join("average_parameters")?;
        let step = self.step;
        self.step += 1;
        let due = |period| step >= self.warmup_steps && (step - self.origin).is_multiple_of(period);
        let Some((_, group)) = self.levels.iter().rfind(|(period, _)| due(*period)) else {
            return Ok(());
        };
        let with_gradient = parameters.iter().filter(|parameter| parameter.grad().defined());
        let parameters: Vec<_> = with_gradient.map(Tensor::shallow_clone).collect();
        let expected = "one with gradients: average before zero_grad";
        let found = "a list without a gradient";
        group.or_report(check(!parameters.is_empty(), "parameters", found, expected))?;
        average_parameters(&parameters, group)
    }
}

/// Replaces parameters by their means over the ranks. A collective, with parameters in the same order.
/// `model_averaging.utils.average_parameters`
pub fn average_parameters(parameters: &[Tensor], group: &ProcessGroup) -> Result<()> {
    let is_whole = shards::group_of(parameters)?.is_none();
    let expected = "the parameters of a whole model on each rank";
    check(is_whole, "parameters", "a list of shards of FullyShard", expected)?;
    copy_back(parameters, &start_mean(group, parameters)?.wait()?)
}

/// Starts to average tensors, which must be in the same order on all ranks: one flat mean of all. A collective.
pub(crate) fn start_mean(group: &ProcessGroup, tensors: &[Tensor]) -> Result<Pending<Tensor>> {
    let mut flat = flatten(tensors)?;
    div_number_(&mut flat, group.world_size() as f64)?;
    group.all_reduce_async(flat, ReduceOp::Sum)
}
