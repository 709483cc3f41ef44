//! Post-local SGD: the mean over all ranks at first, and over a subgroup afterwards.

use super::{AllReduce, CommHook, Finish, GradBucket};
use crate::{Result, distributed::ProcessGroup};

/// Averages gradients over all ranks for some steps, then over a subgroup or not at all. `post_localSGD_hook`
///
/// Ranks of different subgroups go different ways from then on, so their parameters must be averaged from time to time:
/// use it with a [`PostLocalSgdOptimizer`] or a [`PeriodicModelAverager`] with as many steps of warm-up.
///
/// [`PostLocalSgdOptimizer`]: crate::optim::PostLocalSgdOptimizer
/// [`PeriodicModelAverager`]: crate::distributed::PeriodicModelAverager
#[derive(Debug)]
pub struct PostLocalSgd {
    start_local_sgd_iter: u64,
    /// `None` if each rank keeps its own gradients.
    subgroup: Option<ProcessGroup>,
    iteration: u64,
}

impl PostLocalSgd {
    /// Averages over all ranks in the first `start_local_sgd_iter` steps, and then over `subgroup`, by default the
    /// ranks of each host in PyTorch; here [`new_group`](ProcessGroup::new_group) makes it. `PostLocalSGDState`
    pub fn new(subgroup: ProcessGroup, start_local_sgd_iter: u64) -> PostLocalSgd {
        PostLocalSgd { start_local_sgd_iter, subgroup: Some(subgroup), iteration: 0 }
    }

    /// Averages over all ranks in the first `start_local_sgd_iter` steps; each rank keeps its own
    /// gradients afterwards. `PostLocalSGDState(post_local_gradient_allreduce=False)`
    pub fn without_post_local_gradient_allreduce(start_local_sgd_iter: u64) -> PostLocalSgd {
        PostLocalSgd { start_local_sgd_iter, subgroup: None, iteration: 0 }
    }
}

impl CommHook for PostLocalSgd {
    fn name(&self) -> String {
        let afterwards = if self.subgroup.is_some() { "in subgroups" } else { "alone" };
        format!("post_localSGD_hook from step {} on, {afterwards}", self.start_local_sgd_iter)
    }

    fn start(&mut self, group: &ProcessGroup, bucket: &mut GradBucket<'_>) -> Result<Finish> {
        if self.iteration < self.start_local_sgd_iter {
            self.iteration += u64::from(bucket.is_last());
            return AllReduce.start(group, bucket);
        }
        if let Some(subgroup) = &self.subgroup {
            return AllReduce.start(subgroup, bucket);
        }
        let own = bucket.buffer()?;
        Ok(Box::new(|| Ok(own)))
    }
}
