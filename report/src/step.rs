//! The loss of a batch.

use anyhow::{Result, ensure};
use serde::Serialize;

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
    /// Ends a training that has diverged.
    ///
    /// # Errors
    /// For a loss that is not finite. `lr` is the flag that was too large.
    pub fn expect_finite_loss(&self, lr: f64) -> Result<()> {
        let Self { epoch, step, loss } = self;
        ensure!(
            loss.is_finite(),
            "the loss is {loss} at epoch {epoch}, step {step}; try a smaller --lr than {lr}"
        );
        Ok(())
    }
}
