//! Which device a rank trains on, and which backend moves its tensors.

use crate::{Devices, Error, LogicalDevice, Result};
use std::str::FromStr;
use tch::{Cuda, Device};

/// What moves the tensors: PyTorch's `backend`, `gloo` or `nccl` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// TCP between processes and hosts. For CPU tensors; in collectives also for CUDA tensors, by
    /// way of the CPU.
    Gloo,
    /// NVIDIA's library, from GPU to GPU. Every rank needs its own GPU.
    Nccl,
}

/// The device a rank trains on: `auto`, `cpu` or `cuda` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with index LOCAL_RANK.
    Cuda,
}

/// This rank's device, and the backend for it.
///
/// # Errors
/// [`Error::Argument`] if there is no GPU, or not one for each rank on this host.
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
            Some(Backend::Nccl) => Err(Error::argument(
                "backend",
                "nccl",
                "gloo if the device is cpu: NCCL supports CUDA tensors only",
            )),
        };
    }
    if gpus == 0 {
        let expected = if cfg!(feature = "cuda") {
            "cpu: PyTorch finds no GPU on this host"
        } else {
            "cpu: this program was built without the feature `cuda`"
        };
        return Err(Error::argument("device", "cuda", expected));
    }
    let backend = backend.unwrap_or(Backend::Nccl);
    if backend == Backend::Nccl && local_rank >= gpus {
        return Err(Error::argument(
            "LOCAL_RANK",
            local_rank,
            format!(
                "below {gpus}, the number of GPUs here: NCCL needs one per rank; with the \
                 backend gloo, ranks can share one"
            ),
        ));
    }
    Ok((Device::Cuda(local_rank % gpus), backend))
}

/// The device of rank `local_rank` of the `local_world_size` ranks on its host, which take
/// `devices` in order. `None`: `cpu:0`, `cpu:1` …, each with its own count of memory.
///
/// # Errors
/// [`Error::Argument`] if there are not as many devices as ranks, or if GPUs are not in the order
/// of the ranks.
pub fn device_of_rank(
    devices: Option<&Devices>,
    local_rank: usize,
    local_world_size: usize,
) -> Result<LogicalDevice> {
    let device = match devices {
        None => LogicalDevice::Cpu(local_rank),
        Some(devices) if devices.len() == local_world_size => devices.get(local_rank)?,
        Some(devices) => {
            let expected = format!(
                "one for each rank on this host, here {local_world_size}: every rank has a device \
                 of its own; `cargo launch -n {}` starts that many",
                devices.len()
            );
            return Err(Error::argument("devices", devices, expected));
        }
    };
    if let LogicalDevice::Cuda(index) = device
        && index != local_rank
    {
        let expected = format!(
            "cuda:{local_rank}: ranks take GPUs in order; CUDA_VISIBLE_DEVICES picks others"
        );
        return Err(Error::argument("device of this rank", device, expected));
    }
    Ok(device)
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "gloo" => Ok(Backend::Gloo),
            "nccl" => Ok(Backend::Nccl),
            other => Err(Error::argument("backend", format!("{other:?}"), "gloo or nccl")),
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
            other => Err(Error::argument("device", format!("{other:?}"), "cpu, cuda or auto")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_device_of_its_own() {
        let two: Devices = "2xcpu".parse().unwrap();
        let device = |devices, rank| device_of_rank(devices, rank, 2).unwrap();
        assert_eq!(device(None, 1), LogicalDevice::Cpu(1));
        assert_eq!(device(Some(&two), 1), LogicalDevice::Cpu(1));
    }

    #[test]
    fn other_numbers_of_devices_than_of_ranks_are_refused() {
        let refused = |devices: &str, ranks| {
            let devices = devices.parse().unwrap();
            device_of_rank(Some(&devices), 0, ranks).unwrap_err().to_string()
        };
        assert_eq!(
            refused("4xcpu", 1),
            "devices is cpu:0,cpu:1,cpu:2,cpu:3, but must be one for each rank on this host, here \
             1: every rank has a device of its own; `cargo launch -n 4` starts that many"
        );
        let error = refused("cpu:0", 2);
        assert!(error.starts_with("devices is cpu:0, but must be one for each rank"), "{error}");
    }
}
