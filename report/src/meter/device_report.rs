//! What a device held and did, as in the event `device` of the metrics.

use crate::size;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The memory of one device in bytes, and how much of the time it was idle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// `cpu:0`, `cuda:1` …
    pub device: String,
    /// Bytes between two steps.
    pub live: usize,
    /// The most bytes within a step. On a GPU they include the next batch, which comes one ahead.
    pub peak: usize,
    /// Bytes of the model's parameters and buffers.
    pub parameters: usize,
    /// Bytes of their gradients, between two steps.
    pub gradients: usize,
    /// Bytes of the optimizer's state.
    pub optimizer_state: usize,
    /// The share of a step in which the device does nothing, from 0 to 1.
    pub idle_share: f64,
}

impl DeviceReport {
    /// What else lives between two steps: the buckets of DistributedDataParallel, in which gradients travel, and the
    /// memory of image batches, which the data set keeps for the next ones.
    pub fn others(&self) -> usize {
        self.live.saturating_sub(self.parameters + self.gradients + self.optimizer_state)
    }

    /// What is allocated within a step: the batch, on a GPU also the next, activations, outputs, and the gradients of
    /// both. What lives between two steps lives at the peak too, except the parameters' gradients: `zero_grad` frees
    /// them before the backward pass, and they are allocated again while activations are freed.
    pub fn activations(&self) -> usize {
        (self.peak + self.gradients).saturating_sub(self.live)
    }
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, live, peak, idle_share, .. } = self;
        let (live, peak, idle) = (size(*live), size(*peak), 100.0 * idle_share);
        write!(f, "{device}: {live} between two steps, {peak} at the peak, idle {idle:.0} %")
    }
}
