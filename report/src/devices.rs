//! The devices of a training, and those of one of its processes.

use crate::flag_value;
use clap::ValueEnum;
use tch_parallel::distributed::{DeviceChoice, Env, ProcessGroupOptions, device_of_rank};
use tch_parallel::{Devices, Error, LogicalDevice, Result};

/// The flag of programs whose methods serve all devices with one process, or each with its own.
#[derive(Debug, Clone, clap::Args)]
pub struct DevicesArgs {
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1 [default: cpu:0]. With
    /// a distributed method, such as ddp, one for each rank of this host [default: Nxcpu for N ranks].
    #[arg(long)]
    pub devices: Option<Devices>,
}

impl DevicesArgs {
    /// The devices of this process, whose place is `env`: one if the training is distributed, and otherwise all, as the
    /// flag `method` decides. Fails as [`device_of_rank`], and for several ranks of a method that is not distributed.
    pub fn of_process(
        &self,
        env: Option<&Env>,
        method: &impl ValueEnum,
        is_distributed: bool,
    ) -> Result<Devices> {
        let devices = self.devices.as_ref();
        if is_distributed {
            let (rank, ranks) = env.map_or((0, 1), |env| (env.local_rank, env.local_world_size));
            return Devices::new([device_of_rank(devices, rank, ranks)?]);
        }
        if let Some(Env { world_size: ranks @ 2.., .. }) = env {
            let expected = format!(
                "a distributed one, such as ddp, where there are several ranks, here {ranks}: one \
                 process serves all its devices"
            );
            return Err(Error::argument("--method", flag_value(method), expected));
        }
        devices.map_or_else(|| Devices::cpu(1), |devices| Ok(devices.clone()))
    }
}

/// On the CPU, gives each device of the `ranks` processes one thread. Devices that shared OpenMP's threads would show
/// nothing about devices that share nothing, and the bytes that such a thread allocates would belong to none of them.
pub fn one_thread_each(devices: &Devices, ranks: usize) {
    if matches!(devices.first(), LogicalDevice::Cpu(_)) && devices.len().max(ranks) > 1 {
        tch::set_num_threads(1);
    }
}

/// How a process with this first device meets the others: ranks on their devices, a single one without a GPU.
pub fn process_group_on(device: LogicalDevice, is_distributed: bool) -> ProcessGroupOptions {
    let on_gpu = matches!(device, LogicalDevice::Cuda(_)) && is_distributed;
    let device = if on_gpu { DeviceChoice::Cuda } else { DeviceChoice::Cpu };
    ProcessGroupOptions { device, ..Default::default() }
}
