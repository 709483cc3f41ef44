//! On which device a rank trains, and who moves its tensors.

use crate::{Error, Result};
use std::str::FromStr;
use tch::{Cuda, Device};

/// Who moves the tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// TCP between hosts and processes; for CPU tensors, and for CUDA tensors by way of the CPU.
    Gloo,
    /// NVIDIA's library, from GPU to GPU; every rank needs a GPU of its own.
    Nccl,
}

/// On which device a rank trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU where there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with the number LOCAL_RANK.
    Cuda,
}

/// This rank's device, and the backend for it.
///
/// # Errors
/// [`Error::Argument`] where there is no GPU, or not one for each rank of this host.
pub(super) fn choose(
    device: DeviceChoice,
    backend: Option<Backend>,
    local_rank: usize,
) -> Result<(Device, Backend)> {
    let gpus = if cfg!(feature = "cuda") { Cuda::device_count().max(0) as usize } else { 0 };
    let cuda = match device {
        DeviceChoice::Cpu => false,
        DeviceChoice::Auto => gpus > 0,
        DeviceChoice::Cuda => true,
    };
    if !cuda {
        return match backend {
            None | Some(Backend::Gloo) => Ok((Device::Cpu, Backend::Gloo)),
            Some(Backend::Nccl) => Err(Error::Argument {
                what: "backend".into(),
                found: "nccl".into(),
                expected: "gloo where the device is cpu: NCCL moves CUDA tensors only".into(),
            }),
        };
    }
    if gpus == 0 {
        let expected = if cfg!(feature = "cuda") {
            "cpu: PyTorch finds no GPU on this host"
        } else {
            "cpu: this program was built without the feature `cuda`"
        };
        return Err(Error::Argument {
            what: "device".into(),
            found: "cuda".into(),
            expected: expected.into(),
        });
    }
    let backend = backend.unwrap_or(Backend::Nccl);
    if backend == Backend::Nccl && local_rank >= gpus {
        return Err(Error::Argument {
            what: "LOCAL_RANK".into(),
            found: local_rank.to_string(),
            expected: format!(
                "below {gpus}, the number of GPUs here: NCCL needs one for every rank; with the \
                 backend gloo ranks may share one"
            ),
        });
    }
    Ok((Device::Cuda(local_rank % gpus), backend))
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gloo" => Ok(Backend::Gloo),
            "nccl" => Ok(Backend::Nccl),
            other => Err(Error::Argument {
                what: "backend".into(),
                found: format!("{other:?}"),
                expected: "gloo or nccl".into(),
            }),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(DeviceChoice::Auto),
            "cpu" => Ok(DeviceChoice::Cpu),
            "cuda" => Ok(DeviceChoice::Cuda),
            other => Err(Error::Argument {
                what: "device".into(),
                found: format!("{other:?}"),
                expected: "cpu, cuda or auto".into(),
            }),
        }
    }
}
