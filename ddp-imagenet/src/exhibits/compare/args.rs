//! The flags of the comparison.

use crate::{args::data::DataArgs, exhibits::train_cifar::Method};
use clap::value_parser;
use ddp_imagenet::models::Arch;
use exhibit_kit::{comparison::equal_share, plot::PlotArgs};
use tch_parallel::{Devices, Result};

/// Train with each of the four methods, and show where time and memory go.
///
/// Every training runs in processes of its own, ddp and apex in one process per device. By default
/// it trains a small PyramidNet on digits, which takes less than a minute on two cores.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    mut_arg("dataset", |dataset| dataset.default_value("mnist")),
    mut_arg("batch_size", |batch_size| batch_size.default_value("32").help(
        "Images per batch, for all devices together"
    )),
    mut_arg("workers", |workers| workers.default_value("0").help(
        "Threads that load batches ahead, for all devices together; 0 loads them in the training \
         loop, which makes the bytes of logical devices exact"
    )),
    mut_arg("directory", |plot| {
        plot.help("Draw charts of speed, memory and utilisation in this directory")
    }),
    after_help = "Examples:
  ddp-imagenet compare                                         a small PyramidNet on two logical devices
  ddp-imagenet compare --arch resnet18 --devices 4xcpu

The article's sizes, on four GPUs and on four parts of a CPU with much memory:
  cargo xtask run ddp-imagenet -- compare --dataset cifar10 --download --arch pyramidnet --workers 4 \\
      --batch-size 768 --single-batch-size 240 --devices cuda:0,cuda:1,cuda:2,cuda:3
  ddp-imagenet compare --dataset cifar10 --download --arch pyramidnet \\
      --batch-size 768 --single-batch-size 240 --devices 4xcpu --timeout 36000"
)]
pub struct CompareArgs {
    #[command(flatten)]
    pub data: DataArgs,
    /// Network: pyramidnet, the article's; pyramidnet20_a24 or another of any depth and α; resnet18,
    /// 34, 50, 101 or 152.
    #[arg(short, long, default_value = "pyramidnet20_a24")]
    pub arch: Arch,
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "2xcpu")]
    pub devices: Devices,
    /// Images per batch of the single device [default: the share of --batch-size of each device].
    #[arg(long, value_name = "IMAGES", value_parser = value_parser!(u32).range(1..))]
    single_batch_size: Option<u32>,
    /// Stop each training after N batches; memory and times leave out the first two. With as many
    /// as an epoch has, or more, the time of the epoch is measured rather than projected.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(3..))]
    pub steps: u32,
    #[command(flatten)]
    pub plot: PlotArgs,
    /// Seconds that each training may take.
    #[arg(long, default_value_t = 600, value_parser = value_parser!(u64).range(1..=u32::MAX.into()))]
    pub timeout: u64,
}

impl CompareArgs {
    /// Images in a batch of each device.
    pub fn images(&self, method: Method) -> Result<usize> {
        let share = equal_share(self.data.batch_size, &self.devices)?;
        let single = self.single_batch_size.filter(|_| method == Method::Single);
        Ok(single.map_or(share, |images| images as usize))
    }

    /// Threads that load batches, as `train-cifar` counts them: per process with apex, else for all devices together.
    pub fn workers(&self, method: Method) -> usize {
        match method {
            Method::Apex => self.data.workers.div_ceil(self.devices.len()),
            Method::Single | Method::DataParallel | Method::Ddp => self.data.workers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    #[test]
    fn the_single_device_has_what_each_of_several_has_unless_told_otherwise() {
        let compare = |flags: &str| parse_flags::<CompareArgs>(flags.split(' ')).unwrap();
        let both = [Method::Single, Method::Ddp];
        let images = |flags| both.map(|method| compare(flags).images(method).unwrap());
        assert_eq!(images("--devices 4xcpu --batch-size 768"), [192, 192]);
        let args = compare("--devices 4xcpu --workers 6");
        assert_eq!([Method::Ddp, Method::Apex].map(|method| args.workers(method)), [6, 2]);
        // The article's single GPU had more (S4.46).
        assert_eq!(images("--devices 4xcpu --batch-size 768 --single-batch-size 240"), [240, 192]);
    }
}
