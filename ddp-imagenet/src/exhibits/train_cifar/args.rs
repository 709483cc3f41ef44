//! The flags of one training, and what follows from them.

use crate::args::data::{DataArgs, Images};
use crate::originals::{DIST_URL, RANK, WORLD_SIZE};
use anyhow::{Result, ensure};
use clap::{ValueEnum, value_parser};
use ddp_imagenet::models::Arch;
use report::{DevicesArgs, Here, Originals, ReportArgs, process_group_on};
use tch::nn::VarStore;
use tch_parallel::data::{DataLoaderOptions, ImageSource};
use tch_parallel::distributed::{Backend, Env, ProcessGroup, ProcessGroupOptions};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions};
use tch_parallel::{Devices, Error, LogicalDevice, nn::NormLayer};

/// Train PyramidNet on CIFAR-10 with one method, as the article's companion repository does.
///
/// By default it trains the article's network, which takes a minute per step on two cores, on
/// digits that are part of the program.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    mut_arg("dataset", |dataset| dataset.default_value("mnist")),
    mut_arg("batch_size", |batch_size| batch_size.default_value("240").help(
        "Images per batch, divided among the devices of this host; with apex, for each"
    )),
    mut_arg("workers", |workers| workers.help(
        "Threads that load batches ahead, divided like the batch; 0 loads them in the training loop, \
         which makes the bytes of cpu:0 exact"
    )),
    after_help = "Examples: the companion repository's four GPUs, and two logical devices.
  cargo xtask run ddp-imagenet -- train-cifar --method data-parallel --dataset cifar10 --download \\
      --devices cuda:0,cuda:1,cuda:2,cuda:3 --batch-size 768
  ddp-imagenet train-cifar --method data-parallel --devices 2xcpu \\
      --arch pyramidnet20_a24 --batch-size 32 --steps 41"
)]
pub struct Args {
    /// How the devices share the batch.
    #[arg(short, long, value_enum, default_value_t = Method::Single)]
    pub method: Method,
    #[command(flatten)]
    data: DataArgs,
    /// Network: pyramidnet, the article's; pyramidnet20_a24 or another of any depth and α; resnet18,
    /// 34, 50, 101 or 152.
    #[arg(short, long, default_value = "pyramidnet")]
    pub arch: Arch,
    /// Normalise over the batches of all ranks (SyncBatchNorm). For ddp and apex.
    #[arg(long)]
    sync_bn: bool,
    /// Optimizer. The companion repository uses Adam with DataParallel.
    #[arg(long, value_enum, ignore_case = true, default_value_t = OptimizerKind::Sgd)]
    optimizer: OptimizerKind,
    /// Learning rate.
    #[arg(long, default_value_t = 0.1)]
    pub lr: f64,
    /// Number of passes over the training set.
    #[arg(long, default_value_t = 1)]
    pub epochs: u64,
    /// Stop each epoch after N batches.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub steps: Option<u32>,
    /// Seed of the weights, the order of the images and their augmentation.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    #[command(flatten)]
    devices: DevicesArgs,
    /// Backend of the collectives: gloo or nccl [default: nccl for GPUs, else gloo].
    #[arg(long)]
    backend: Option<Backend>,
    /// Print a line every N batches.
    #[arg(short, long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    pub print_freq: u32,
    #[command(flatten)]
    pub report: ReportArgs,
}

/// The companion repository's flags that have another name here.
pub const ORIGINALS: Originals<'_> = &[
    ("--dist-backend", Here::Flag("--backend")),
    ("--gpu-devices", Here::Instead(DEVICES)),
    ("--gpu", Here::Instead(DEVICES)),
    ("--resume", Here::Instead("leave it out; the original never reads it")),
    ("--distributed", Here::Instead("type launch -n N ddp-imagenet train-cifar --method ddp")),
    ("--world-size", Here::Instead(WORLD_SIZE)),
    ("--rank", Here::Instead(RANK)),
    ("--dist-url", Here::Instead(DIST_URL)),
];

const DEVICES: &str = "type --devices cuda:0,cuda:1 for GPUs 0 and 1";

/// How devices share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One process with one device.
    Single,
    /// One process with several devices: DataParallel.
    DataParallel,
    /// One process per device: DistributedDataParallel.
    Ddp,
    /// One process per device: Apex's DistributedDataParallel, whose batch and workers are those of each process.
    Apex,
}

impl Method {
    /// Whether every device has a process of its own.
    pub fn is_distributed(self) -> bool {
        matches!(self, Method::Ddp | Method::Apex)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OptimizerKind {
    /// Momentum 0.9, one number per parameter, and weight decay 1e-4.
    #[value(name = "SGD")]
    Sgd,
    /// Two numbers per parameter.
    #[value(name = "Adam")]
    Adam,
}

impl Args {
    /// The devices of this process. Refuses devices, or a number of ranks, that the method does not support.
    pub fn devices(&self, env: Option<&Env>) -> Result<Devices> {
        let is_distributed = self.method.is_distributed();
        let devices = self.devices.of_process(env, &self.method, is_distributed)?;
        if is_distributed {
            return Ok(devices);
        }
        let expected = "left out unless --method is ddp or apex: one process has nobody to exchange \
                        with";
        ensure!(self.backend.is_none(), Error::argument("--backend", "given", expected));
        let expected = "left out unless --method is ddp or apex: in one process each replica \
                        normalises its own part of the batch, as in PyTorch";
        ensure!(!self.sync_bn, Error::argument("--sync-bn", "given", expected));
        let expected = "a single device; --method data-parallel trains on several";
        let are_too_many = self.method == Method::Single && devices.len() > 1;
        ensure!(!are_too_many, Error::argument("--devices", devices, expected));
        Ok(devices)
    }

    /// How this process, whose first device is `device`, meets the others.
    pub fn process_group(&self, device: LogicalDevice) -> ProcessGroupOptions {
        let options = process_group_on(device, self.method.is_distributed());
        ProcessGroupOptions { backend: self.backend, ..options }
    }

    /// The images to learn from, and the number of their classes.
    pub fn train_set(&self) -> Result<(Images, i64)> {
        let (train_set, _) = self.data.load(self.arch, self.seed)?;
        let classes = train_set.source().classes().len();
        Ok((train_set, classes as i64))
    }

    /// How this process loads batches for `device`, as one of `ranks` processes that share batch and
    /// workers. Refuses a batch with fewer images than devices.
    pub fn loader(&self, device: LogicalDevice, ranks: usize) -> Result<DataLoaderOptions> {
        let options = self.data.loader(ranks, matches!(device, LogicalDevice::Cuda(_)))?;
        if let (Method::DataParallel, Some(devices)) = (self.method, &self.devices.devices) {
            let expected = format!("at least {}, an image for each device", devices.len());
            let is_enough = options.batch_size >= devices.len();
            ensure!(is_enough, Error::argument("--batch-size", options.batch_size, expected));
        }
        Ok(options)
    }

    /// The model's normalisation, over the batch of this rank or of all ranks.
    pub fn norm_layer(&self, group: &ProcessGroup) -> NormLayer {
        if self.sync_bn { NormLayer::SyncBatchNorm(group.clone()) } else { NormLayer::BatchNorm }
    }

    /// SGD with the companion repository's options, or Adam.
    pub fn optimizer(&self, vs: &VarStore) -> Result<Box<dyn Optimizer>> {
        let lr = self.lr;
        let sgd = SgdOptions { lr, momentum: 0.9, weight_decay: 1e-4, ..Default::default() };
        let adam = AdamOptions { lr, ..Default::default() };
        Ok(match self.optimizer {
            OptimizerKind::Sgd => Box::new(Sgd::new(vs, sgd)?),
            OptimizerKind::Adam => Box::new(Adam::new(vs, adam)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::parse_flags;

    #[test]
    fn without_flags_it_is_the_articles_single_gpu() {
        let args: Args = parse_flags([""; 0]).unwrap();
        assert_eq!((args.method, args.arch.to_string().as_str()), (Method::Single, "pyramidnet"));
        assert_eq!((args.data.batch_size, args.data.workers), (240, 4));
        assert_eq!((args.epochs, args.print_freq, args.steps), (1, 20, None));
    }
}
