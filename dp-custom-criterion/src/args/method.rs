//! How devices share a batch.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use report::{DevicesArgs, flag_value};
use tch_parallel::distributed::Env;
use tch_parallel::{Devices, Error, LogicalDevice};

/// The article's ways to train on several GPUs, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One process; the first device gathers the outputs and computes the loss.
    DataParallel,
    /// One process; another device gathers the outputs and computes the loss.
    OutputDevice,
    /// One process; every device computes the loss of its own outputs.
    CustomCriterion,
    /// DistributedDataParallel: one process per device.
    Ddp,
    /// Apex's DistributedDataParallel: one process per device, whose gradients are exchanged after the
    /// backward pass.
    Apex,
}

impl Method {
    /// Whether every device has a process of its own.
    pub fn is_distributed(self) -> bool {
        matches!(self, Method::Ddp | Method::Apex)
    }
}

#[derive(Debug, clap::Args)]
pub struct MethodArgs {
    /// How the devices share the batch.
    #[arg(short, long, value_enum, default_value_t = Method::DataParallel)]
    pub method: Method,
    #[command(flatten)]
    devices: DevicesArgs,
    /// Position among the devices, from 0, of the one that gathers the outputs and computes the loss
    /// [default: 1]. For the method output-device.
    #[arg(long)]
    output_device: Option<usize>,
    /// Weight each device's losses by the pairs and words that count in them, which gives the loss of
    /// the whole batch rather than the devices' mean. For the method custom-criterion.
    #[arg(long)]
    pub weighted: bool,
    /// Find parameters that the loss does not depend on, which would otherwise be an error. For the
    /// method ddp.
    #[arg(long)]
    pub find_unused_parameters: bool,
}

impl MethodArgs {
    /// The devices of this process.
    ///
    /// # Errors
    /// [`Error::Argument`] for flags of another method, and for a
    /// method that does not support the number of ranks.
    pub fn devices(&self, env: Option<&Env>) -> Result<Devices> {
        for (flag, is_given, method) in [
            ("--output-device", self.output_device.is_some(), Method::OutputDevice),
            ("--weighted", self.weighted, Method::CustomCriterion),
            ("--find-unused-parameters", self.find_unused_parameters, Method::Ddp),
        ] {
            let expected = format!("left out unless --method is {}", flag_value(&method));
            let is_right = !is_given || self.method == method;
            ensure!(is_right, Error::argument(flag, "given", expected));
        }
        Ok(self.devices.of_process(env, &self.method, self.method.is_distributed())?)
    }

    /// Where DataParallel gathers its outputs.
    ///
    /// # Errors
    /// [`Error::Argument`] for a position beyond the last device.
    pub fn output_device(&self, devices: &Devices) -> Result<LogicalDevice> {
        let default = usize::from(self.method == Method::OutputDevice);
        let position = self.output_device.unwrap_or(default);
        let (count, last) = (devices.len(), devices.len() - 1);
        let expected = format!(
            "from 0 to {last}, a position among the {count} of --devices, which is {devices}"
        );
        ensure!(position < count, Error::argument("--output-device", position, expected));
        Ok(devices.get(position)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        method: MethodArgs,
    }

    fn method(flags: &str) -> MethodArgs {
        Line::try_parse_from(["program"].into_iter().chain(flags.split_whitespace()))
            .unwrap()
            .method
    }

    #[test]
    fn outputs_go_to_the_first_device_or_to_the_second_unless_told_otherwise() {
        let three = Devices::cpu(3).unwrap();
        let output_device = |flags| method(flags).output_device(&three);
        assert_eq!(output_device("").unwrap(), LogicalDevice::Cpu(0));
        assert_eq!(output_device("-m output-device").unwrap(), LogicalDevice::Cpu(1));
        assert_eq!(output_device("--output-device 2").unwrap(), LogicalDevice::Cpu(2));
        assert_eq!(
            output_device("--output-device 3").unwrap_err().to_string(),
            "--output-device is 3, but must be from 0 to 2, a position among the 3 of --devices, \
             which is cpu:0,cpu:1,cpu:2"
        );
    }

    #[test]
    fn flags_of_another_method_are_refused() {
        for (flags, expected) in [
            (
                "--output-device 1",
                "--output-device is given, but must be left out unless --method is output-device",
            ),
            (
                "-m ddp --weighted",
                "--weighted is given, but must be left out unless --method is custom-criterion",
            ),
            (
                "-m apex --find-unused-parameters",
                "--find-unused-parameters is given, but must be left out unless --method is ddp",
            ),
        ] {
            assert_eq!(method(flags).devices(None).unwrap_err().to_string(), expected);
        }
    }
}
