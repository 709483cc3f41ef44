//! The loss of a batch.

use anyhow::{Error, Result, anyhow};
use serde::Serialize;
use tch_parallel::distributed::ProcessGroup;

/// The event `step` of a rank's metrics.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Step {
    /// From 0.
    pub epoch: u64,
    /// The number of the batch in its epoch, from 0.
    pub step: usize,
    /// Of this rank's batch.
    pub loss: f32,
}

impl Step {
    /// Ends a training that has diverged: for a loss that is not finite, an error with `advice` on what helps, unless
    /// the `group` knows of a rank that made an exchange fail.
    pub fn expect_finite_loss(&self, advice: &str, group: &ProcessGroup) -> Result<()> {
        let Self { epoch, step, loss } = self;
        if loss.is_finite() {
            return Ok(());
        }
        let advice = format!("the loss is {loss} at epoch {epoch}, step {step}; {advice}");
        // Over NCCL, losses that are read after a failed exchange are useless, and the read is not what fails.
        Err(group.get_error().map_or_else(|| anyhow!(advice), Error::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};
    use tch_parallel::distributed::{DeviceChoice, ProcessGroupOptions, Store};

    #[test]
    fn a_loss_of_a_group_that_has_failed_does_not_blame_the_learning_rate() {
        let store = Store::from_env(Duration::from_secs(60)).unwrap();
        let join = |rank| {
            let options = ProcessGroupOptions { device: DeviceChoice::Cpu, ..Default::default() };
            ProcessGroup::with_store(&store.try_clone().unwrap(), rank, 2, options).unwrap()
        };
        let group = thread::scope(|scope| {
            let other = scope.spawn(|| join(1));
            let group = join(0);
            drop(other.join().unwrap());
            group
        });
        // Rank 1 has left, and does not come.
        assert!(group.with_timeout(Duration::from_millis(100)).barrier().is_err());
        let useless = Step { epoch: 2, step: 7, loss: f32::NAN };
        let error = useless.expect_finite_loss("try a smaller --lr", &group).unwrap_err();
        assert!(!error.to_string().contains("--lr"), "{error}");
        assert!(error.is::<tch_parallel::Error>(), "{error}");
    }
}
