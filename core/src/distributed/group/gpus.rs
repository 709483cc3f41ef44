//! Which GPUs a rank sees, and which of them is its own.

use crate::{LogicalDevice, cuda_is_built};
use tch::Cuda;

/// What this process sees of its host's GPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gpus {
    /// How many GPUs CUDA shows.
    pub(crate) count: usize,
    /// Whether CUDA_VISIBLE_DEVICES names a single one: SLURM, say, gives each rank its own, which it calls `cuda:0`.
    pub(crate) one_is_named: bool,
}

impl Gpus {
    pub(crate) fn visible() -> Self {
        let count = if cuda_is_built() { Cuda::device_count().max(0) as usize } else { 0 };
        let named = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
        Gpus { count, one_is_named: names_one(&named) }
    }

    /// The GPU that belongs to this rank alone. For one that two ranks name, NCCL ends with "Duplicate GPU detected".
    pub(crate) fn own(self, local_rank: usize) -> Option<usize> {
        let only = || self.named_is_own(LogicalDevice::Cuda(0)).then_some(0);
        (local_rank < self.count).then_some(local_rank).or_else(only)
    }

    /// Whether this is the only GPU, and was named for this process.
    pub(crate) fn named_is_own(self, device: LogicalDevice) -> bool {
        self.count == 1 && self.one_is_named && device == LogicalDevice::Cuda(0)
    }
}

fn names_one(visible_devices: &str) -> bool {
    !visible_devices.trim().is_empty() && !visible_devices.contains(',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_visible_devices_names_one_or_several() {
        for (list, one) in [("3", true), ("GPU-a", true), ("0,1", false), ("", false)] {
            assert_eq!(names_one(list), one, "{list:?}");
        }
    }
}
