//! How much is installed, and how large that is.

use crate::prelude::*;
use tch_parallel_contract::gpus;

/// How much of PyTorch is installed. Each level includes the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What it takes to build and run the programs on the CPU: libtorch, and two libraries that it loads.
    Minimal,
    /// Also what PyTorch needs in Python and on a GPU, headers that NCCL's includes, and torchvision to compare with.
    Full,
}

impl Level {
    /// What the programs need on this machine: a GPU can only be used with all of CUDA's libraries.
    pub(crate) fn for_this_machine() -> Self {
        if gpus() > 0 { Self::Full } else { Self::Minimal }
    }

    /// The packages that pip is told to install. All releases are built with CUDA 13.0.
    pub(super) fn requirements(self, release: &Release) -> Vec<String> {
        let Release { torch, torchvision, .. } = release;
        let packages = match self {
            Self::Minimal => "nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85".to_owned(),
            Self::Full => format!(
                "numpy safetensors nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 \
                 torchvision=={torchvision}"
            ),
        };
        format!("torch=={torch} {packages}").split(' ').map(str::to_owned).collect()
    }

    /// The size of a set-up from scratch, which the user is told before the download.
    pub(super) fn says(self) -> &'static str {
        match self {
            Self::Minimal => "0.55 GB to fetch, 1.3 GB on disk",
            Self::Full => "PyTorch with all that it needs, 2.8 GB to fetch, 4.7 GB on disk",
        }
    }

    /// The most kilobytes that the installation takes at any time, downloaded files included.
    pub(super) fn kilobytes(self) -> u64 {
        match self {
            Self::Minimal => 2_000_000,
            Self::Full => 7_500_000,
        }
    }
}
