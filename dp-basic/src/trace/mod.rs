//! One step of DataParallel in slow motion: what happens on which device, what is copied, and how
//! long it takes.

mod print;
mod step;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use report::plot;
use std::path::PathBuf;
use tch::Tensor;
use tch_parallel::checkpoint::check_destination;
use tch_parallel::{Devices, LogicalDevice};

/// Show one training step of DataParallel, part by part.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic trace                                    6 tokens on 4 devices, of which 3 have work
  dp-basic trace --devices cpu:2 --output-device 1  outputs and loss on the second device
  dp-basic trace --model mlp --svg timeline.svg     59 million parameters, and a picture")]
pub struct Args {
    /// What to train.
    #[arg(long, value_enum, default_value_t = Model::Toy)]
    model: Model,
    /// cpu:N for N logical devices, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "cpu:4")]
    devices: String,
    /// Rows of the whole batch; by default 6 for toy and 8 for mlp.
    #[arg(long)]
    batch: Option<i64>,
    /// The device on which outputs are gathered, by its position among the devices, from 0.
    #[arg(long, default_value_t = 0)]
    output_device: usize,
    /// Draw the step as a timeline, a lane for each device.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Leave out the times, which differ from run to run.
    #[arg(long)]
    no_times: bool,
}

/// The models of the two forum threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Embedding(1000, 10) and Linear(10, 10).
    Toy,
    /// Linear(768, 76800), ReLU and Linear(76800, 1), with two targets.
    Mlp,
}

/// What a step depends on.
#[derive(Debug)]
struct Settings {
    /// Those that share the batch.
    devices: Devices,
    /// One of them, which gathers.
    output_device: LogicalDevice,
    /// Rows of the whole batch.
    batch: i64,
}

pub fn run(args: &Args) -> Result<()> {
    let settings = Settings::new(args)?;
    if let Some(path) = &args.svg {
        check_destination(path)?;
    }
    let traced = match args.model {
        Model::Toy => step::toy(&settings)?,
        Model::Mlp => step::two_targets(&settings)?,
    };
    print!("{}", print::report(&settings, &traced, !args.no_times));
    if let Some(path) = &args.svg {
        plot::save(path, &print::timeline(&settings, &traced)?)?;
    }
    Ok(())
}

impl Settings {
    /// Refuses what no step could work with, before a large model is built.
    fn new(args: &Args) -> Result<Self> {
        let devices: Devices = args.devices.parse()?;
        let output_device = devices.get(args.output_device)?;
        let batch = args.batch.unwrap_or(match args.model {
            Model::Toy => 6,
            Model::Mlp => 8,
        });
        ensure!(batch > 0, "--batch is {batch}, but must be at least 1: a row is needed to train");
        Ok(Settings { devices, output_device, batch })
    }

    /// The place of a device in the list.
    fn position(&self, device: LogicalDevice) -> Option<usize> {
        self.devices.iter().position(|other| other == device)
    }

    /// What the caller of DataParallel has: a tensor on the first device.
    fn on_first(&self, tensor: &Tensor) -> Result<Tensor> {
        Ok(self.devices.first().copy_of(tensor)?)
    }
}
