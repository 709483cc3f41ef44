//! A rank's place in a group.

use super::device::Backend;
use std::time::Duration;
use tch::Device;

/// Where in the group this rank is, and how it reaches the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) world_size: usize,
    /// This process's rank in the job, used in messages; its rank in the group may differ.
    pub(crate) job_rank: usize,
    pub(crate) local_rank: usize,
    pub(crate) local_world_size: usize,
    pub(crate) device: Device,
    pub(crate) backend: Backend,
    pub(crate) timeout: Duration,
    /// How long to wait for the others while the group is made.
    pub(crate) join_timeout: Duration,
}
