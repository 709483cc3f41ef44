//! Which device a rank trains on, and which backend moves its tensors.

use super::gpus::Gpus;
use crate::{Devices, Error, LogicalDevice, Result, check};
use std::{str::FromStr, time::Duration};
use tch::Device;
use tch_parallel_base::no_gpu;

/// What moves the tensors: PyTorch's `backend`, `gloo` or `nccl` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// TCP between processes and hosts. For CPU tensors; in collectives also for CUDA tensors, by way of the CPU.
    Gloo,
    /// NVIDIA's library, from GPU to GPU. Every rank needs its own GPU.
    Nccl,
}

impl Backend {
    /// How long a group waits for a rank by default: 30 minutes with gloo, because loading data can take that long, and
    /// 10 minutes with NCCL. PyTorch's `default_pg_timeout` and `default_pg_nccl_timeout`.
    pub const fn default_timeout(self) -> Duration {
        match self {
            Backend::Gloo => Duration::from_secs(30 * 60),
            Backend::Nccl => Duration::from_secs(10 * 60),
        }
    }
}

/// The device a rank trains on: `auto`, `cpu` or `cuda` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// A GPU if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU with index LOCAL_RANK; `cuda:0` if CUDA_VISIBLE_DEVICES names only one, as under SLURM.
    Cuda,
}

impl DeviceChoice {
    /// The device of a worker that exchanges nothing from it: the GPU with this number, counted around if there are
    /// fewer. For ranks of a group it is [`ProcessGroup::device`](crate::distributed::ProcessGroup::device).
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no GPU for `cuda`.
    pub fn of_worker(self, number: usize) -> Result<Device> {
        Ok(choose(Gpus::visible(), self, Some(Backend::Gloo), number)?.0)
    }
}

/// This rank's device, and the backend for it.
pub(crate) fn choose(
    gpus: Gpus,
    device: DeviceChoice,
    backend: Option<Backend>,
    local_rank: usize,
) -> Result<(Device, Backend)> {
    if device == DeviceChoice::Cpu || device == DeviceChoice::Auto && gpus.count == 0 {
        let expected = "gloo if the device is cpu: NCCL supports CUDA tensors only";
        check(backend != Some(Backend::Nccl), "backend", "nccl", expected)?;
        return Ok((Device::Cpu, Backend::Gloo));
    }
    check(gpus.count > 0, "device", "cuda", format_args!("cpu: {}", no_gpu()))?;
    match (backend.unwrap_or(Backend::Nccl), gpus.own(local_rank)) {
        (backend, Some(own)) => Ok((Device::Cuda(own), backend)),
        (Backend::Gloo, None) => Ok((Device::Cuda(local_rank % gpus.count), Backend::Gloo)),
        (Backend::Nccl, None) => {
            let expected = format!(
                "below {}, the number of GPUs that this process sees: NCCL needs one per rank; \
                 with the backend gloo, ranks can share one",
                gpus.count
            );
            Err(Error::argument("LOCAL_RANK", local_rank, expected))
        }
    }
}

/// `torch.cuda.set_device(local_rank)`, for this thread and before anything else uses CUDA: NCCL, and whatever names no
/// index, uses the current device. It would be GPU 0, where every rank would have a context of some hundred MB.
pub(crate) fn make_current(device: Device) -> Result<()> {
    let Device::Cuda(index) = device else { return Ok(()) };
    c10d_sys::device::set_cuda_device(index).map_err(Error::engine("set the device"))
}

/// The device of rank `local_rank` of the `local_world_size` ranks on its host, which take
/// `devices` in order. `None`: `cpu:0`, `cpu:1` …, each with its own count of memory.
///
/// If each rank sees one GPU only, which CUDA_VISIBLE_DEVICES names, as under SLURM, `cuda:0` stands for its own.
///
/// # Errors
/// [`Error::Argument`] if there are not as many devices as ranks, or if GPUs are not in the order of the ranks.
pub fn device_of_rank(
    devices: Option<&Devices>,
    local_rank: usize,
    local_world_size: usize,
) -> Result<LogicalDevice> {
    let devices = devices.map(|devices| devices.iter().collect::<Vec<_>>());
    device_from(Gpus::visible(), devices.as_deref(), local_rank, local_world_size)
}

fn device_from(
    gpus: Gpus,
    devices: Option<&[LogicalDevice]>,
    local_rank: usize,
    local_world_size: usize,
) -> Result<LogicalDevice> {
    let device = match devices {
        None => LogicalDevice::Cpu(local_rank),
        Some(&[device]) if gpus.named_is_own(device) => return Ok(device),
        Some(devices) if devices.len() == local_world_size => {
            let expected = format_args!("below {local_world_size}");
            check(local_rank < local_world_size, "local_rank", local_rank, expected)?;
            devices[local_rank]
        }
        Some(devices) => {
            let expected = format!(
                "one for each rank on this host, here {local_world_size}: every rank has a device \
                 of its own; `cargo launch -n {}` starts that many",
                devices.len()
            );
            let found: Vec<_> = devices.iter().map(ToString::to_string).collect();
            return Err(Error::argument("devices", found.join(","), expected));
        }
    };
    let is_own =
        matches!(device, LogicalDevice::Cpu(_)) || device == LogicalDevice::Cuda(local_rank);
    let why = "ranks take GPUs in order; CUDA_VISIBLE_DEVICES picks others";
    check(is_own, "device of this rank", device, format_args!("cuda:{local_rank}: {why}"))?;
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
    use c10d_sys::pretended_cuda::take_calls;

    #[test]
    fn a_rank_has_a_context_on_its_own_gpu_alone() {
        if !c10d_sys::pretended_cuda::pretend() {
            return;
        }
        take_calls();
        make_current(Device::Cuda(3)).unwrap();
        assert_eq!(take_calls().contexts, 1 << 3);
        make_current(Device::Cpu).unwrap();
        assert_eq!(take_calls().contexts, 0);
    }

    const NONE: Gpus = Gpus { count: 0, one_is_named: false };
    const ONE: Gpus = Gpus { count: 1, one_is_named: false };
    const ONE_NAMED: Gpus = Gpus { count: 1, one_is_named: true };
    const TWO: Gpus = Gpus { count: 2, one_is_named: false };

    #[test]
    fn a_rank_takes_the_gpu_of_its_number_and_under_slurm_the_only_one_that_it_sees() {
        let chosen = |gpus, rank| choose(gpus, DeviceChoice::Auto, None, rank).unwrap();
        assert_eq!(chosen(TWO, 1), (Device::Cuda(1), Backend::Nccl));
        assert_eq!(chosen(NONE, 1), (Device::Cpu, Backend::Gloo));
        let slurms = choose(ONE_NAMED, DeviceChoice::Cuda, None, 3).unwrap();
        assert_eq!(slurms, (Device::Cuda(0), Backend::Nccl));
        let own = Some(&[LogicalDevice::Cuda(0)][..]);
        assert_eq!(device_from(ONE_NAMED, own, 3, 4).unwrap(), LogicalDevice::Cuda(0));
        device_from(ONE, own, 3, 4).unwrap_err();
    }

    #[test]
    fn ranks_share_a_gpu_over_gloo_only() {
        let chosen = |backend| choose(ONE, DeviceChoice::Cuda, backend, 1);
        assert_eq!(chosen(Some(Backend::Gloo)).unwrap(), (Device::Cuda(0), Backend::Gloo));
        insta::assert_snapshot!(chosen(None).unwrap_err(), @"LOCAL_RANK is 1, but must be below 1, the number of GPUs that this process sees: NCCL needs one per rank; with the backend gloo, ranks can share one");
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_program_without_cuda_says_how_to_build_it() {
        let error = choose(NONE, DeviceChoice::Cuda, None, 0).unwrap_err();
        insta::assert_snapshot!(error, @"device is cuda, but must be cpu: this program was built without the feature `cuda`, which `cargo launch` and `cargo xtask run` enable on a machine with a GPU");
    }

    #[test]
    fn every_rank_has_a_device_of_its_own_and_other_numbers_of_devices_are_refused() {
        let of_rank = |devices: Option<&str>, rank, ranks| {
            let devices = devices.map(|devices| devices.parse::<Devices>().unwrap());
            device_of_rank(devices.as_ref(), rank, ranks)
        };
        assert_eq!(of_rank(None, 1, 2).unwrap(), LogicalDevice::Cpu(1));
        assert_eq!(of_rank(Some("2xcpu"), 1, 2).unwrap(), LogicalDevice::Cpu(1));
        let refused = |devices, ranks| of_rank(Some(devices), 0, ranks).unwrap_err().to_string();
        let expected = "devices is cpu:0,cpu:1,cpu:2,cpu:3, but must be one for each rank on this host, here 1: every \
                        rank has a device of its own; `cargo launch -n 4` starts that many";
        assert_eq!(refused("4xcpu", 1), expected);
        let error = refused("cpu:0", 2);
        assert!(error.starts_with("devices is cpu:0, but must be one for each rank"), "{error}");
    }
}
