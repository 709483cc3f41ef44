//! How devices share a batch.

use anyhow::{Result, ensure};
use clap::ValueEnum;
use report::flag_value;
use std::fmt;
use tch_parallel::distributed::{DeviceChoice, Env, ProcessGroupOptions, device_of_rank};
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
}

impl fmt::Display for Method {
    /// The flag's value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&flag_value(self))
    }
}

#[derive(Debug, clap::Args)]
pub struct MethodArgs {
    /// How the devices share the batch.
    #[arg(short, long, value_enum, default_value_t = Method::DataParallel)]
    pub method: Method,
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1 [default: cpu:0]. With
    /// ddp one for each rank of this host [default: Nxcpu for N ranks].
    #[arg(long)]
    devices: Option<Devices>,
    /// Position among the devices, from 0, of the one that gathers the outputs and computes the loss
    /// [default: 1]. For the method output-device.
    #[arg(long)]
    output_device: Option<usize>,
    /// Weight each device's losses by the pairs and words that count in them, which gives the loss of
    /// the whole batch rather than the devices' mean. For the method custom-criterion.
    #[arg(long)]
    pub weighted: bool,
}

impl MethodArgs {
    /// The devices of this process.
    ///
    /// # Errors
    /// [`Error::Argument`] for flags of another method, and for a
    /// method that does not support the number of ranks.
    pub fn devices(&self, env: Option<&Env>) -> Result<Devices> {
        if let Some(position) = self.output_device {
            let expected = "left out unless --method is output-device";
            let is_used = self.method == Method::OutputDevice;
            ensure!(is_used, Error::argument("--output-device", position, expected));
        }
        if self.weighted {
            let expected = "left out unless --method is custom-criterion: the others' loss is \
                            always that of the whole batch";
            let is_used = self.method == Method::CustomCriterion;
            ensure!(is_used, Error::argument("--weighted", "given", expected));
        }
        match env {
            Some(env) => self.devices_of(env.world_size, env.local_rank, env.local_world_size),
            None => self.devices_of(1, 0, 1),
        }
    }

    fn devices_of(&self, ranks: usize, local_rank: usize, local_ranks: usize) -> Result<Devices> {
        let devices = self.devices.as_ref();
        if self.method == Method::Ddp {
            return Ok(Devices::new([device_of_rank(devices, local_rank, local_ranks)?])?);
        }
        let expected = format!(
            "ddp where there are several ranks, here {ranks}: one process serves all its devices"
        );
        ensure!(ranks == 1, Error::argument("--method", self.method, expected));
        Ok(devices.map_or_else(|| Devices::cpu(1), |devices| Ok(devices.clone()))?)
    }

    /// Where outputs are gathered.
    ///
    /// # Errors
    /// [`Error::Argument`] for a position beyond the last device.
    pub fn output_device(&self, devices: &Devices) -> Result<LogicalDevice> {
        let position = self.output_device.unwrap_or(1);
        let (count, last) = (devices.len(), devices.len() - 1);
        let expected = format!(
            "from 0 to {last}, a position among the {count} of --devices, which is {devices}"
        );
        ensure!(position < count, Error::argument("--output-device", position, expected));
        Ok(devices.get(position)?)
    }

    /// The ranks of ddp communicate on their own devices. A process on its own needs no GPU for that.
    pub fn process_group(&self, device: LogicalDevice) -> ProcessGroupOptions {
        let device = match (self.method, device) {
            (Method::Ddp, LogicalDevice::Cuda(_)) => DeviceChoice::Cuda,
            _ => DeviceChoice::Cpu,
        };
        ProcessGroupOptions { device, ..Default::default() }
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

    /// Ranks, and this one's number on its host, and how many this host has.
    type Place = (usize, usize, usize);
    const ALONE: Place = (1, 0, 1);
    const RANK_1_OF_2: Place = (2, 1, 2);

    fn devices(flags: &str, (ranks, local_rank, local_ranks): Place) -> Result<String, String> {
        let devices = method(flags).devices_of(ranks, local_rank, local_ranks);
        devices.map(|devices| devices.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_process_has_all_devices_and_a_rank_has_one() {
        assert_eq!(devices("", ALONE).unwrap(), "cpu:0");
        assert_eq!(devices("--devices 2xcpu", ALONE).unwrap(), "cpu:0,cpu:1");
        assert_eq!(devices("-m ddp", ALONE).unwrap(), "cpu:0");
        assert_eq!(devices("-m ddp", RANK_1_OF_2).unwrap(), "cpu:1");
        assert_eq!(devices("-m ddp --devices 2xcpu", RANK_1_OF_2).unwrap(), "cpu:1");
    }

    #[test]
    fn methods_and_numbers_of_ranks_that_do_not_go_together_are_refused() {
        for (flags, place, expected) in [
            ("", RANK_1_OF_2, "--method is data-parallel, but must be ddp where there are"),
            (
                "-m ddp --devices 4xcpu",
                ALONE,
                "devices is cpu:0,cpu:1,cpu:2,cpu:3, but must be one for each rank on this host",
            ),
            ("-m ddp --devices cpu:0", RANK_1_OF_2, "devices is cpu:0, but must be one"),
        ] {
            let error = devices(flags, place).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn outputs_go_to_the_second_device_unless_told_otherwise() {
        let three = Devices::cpu(3).unwrap();
        let output_device = |flags| method(flags).output_device(&three);
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
            ("--output-device 1", "--output-device is 1, but must be left out unless --method is"),
            ("-m ddp --weighted", "--weighted is given, but must be left out unless --method is"),
        ] {
            let error = method(flags).devices(None).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
