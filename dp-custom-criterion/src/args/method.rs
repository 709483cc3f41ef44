//! How devices share a batch.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use report::{DevicesArgs, flag_value};
use tch_parallel::{Devices, Error, distributed::Env};

/// The article's ways to train on several GPUs, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One process; the first device gathers the outputs and computes the loss.
    DataParallel,
    /// One process; the second device gathers the outputs and computes the loss.
    OutputDevice,
    /// One process; every device computes the loss of its own outputs.
    CustomCriterion,
    /// DistributedDataParallel: one process per device.
    Ddp,
    /// Apex's DistributedDataParallel: one process per device, whose gradients are exchanged after the backward pass.
    Apex,
    /// fully_shard: one process per device, which holds a part of the model, and the whole of a
    /// block only while it is used.
    Fsdp,
}

impl Method {
    /// Whether every device has a process of its own.
    pub fn is_distributed(self) -> bool {
        matches!(self, Method::Ddp | Method::Apex | Method::Fsdp)
    }
}

#[derive(Debug, clap::Args)]
pub struct MethodArgs {
    /// How the devices share the batch.
    #[arg(short, long, value_enum, default_value_t = Method::DataParallel)]
    pub method: Method,
    #[command(flatten)]
    devices: DevicesArgs,
    /// Weight each device's losses by the pairs and words that count in them, which gives the loss of
    /// the whole batch rather than the devices' mean. For the method custom-criterion.
    #[arg(long)]
    pub weighted: bool,
    /// Find parameters that the loss does not depend on, which would otherwise be an error. For the method ddp.
    #[arg(long)]
    pub find_unused_parameters: bool,
}

impl MethodArgs {
    /// The devices of this process. Refuses flags of another method, and a number of ranks or devices
    /// that the method does not support.
    pub fn devices(&self, env: Option<&Env>) -> Result<Devices> {
        for (flag, is_given, method) in [
            ("--weighted", self.weighted, Method::CustomCriterion),
            ("--find-unused-parameters", self.find_unused_parameters, Method::Ddp),
        ] {
            let expected = format!("left out unless --method is {}", flag_value(&method));
            ensure!(!is_given || self.method == method, Error::argument(flag, "given", expected));
        }
        let devices = self.devices.of_process(env, &self.method, self.method.is_distributed())?;
        let expected = "two or more with --method output-device, such as 2xcpu: the second gathers";
        let is_enough = self.method != Method::OutputDevice || devices.len() > 1;
        ensure!(is_enough, Error::argument("--devices", devices, expected));
        Ok(devices)
    }
}
