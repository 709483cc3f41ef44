//! PyramidNet on small images, trained in four ways, as in matthew l's companion repository dnddnjs/pytorch-multigpu.
//!
//! | file | what it holds |
//! |---|---|
//! | `args` | [`Args`]: the flags, the [`Method`] among them, and what follows from them |
//! | `single` | one device |
//! | `data_parallel` | several devices of one process |
//! | `distributed` | a process for each device |
//! | `apex` | the same with Apex's wrapper |
//! | `progress` | [`Progress`]: the repository's lines, and the numbers for a comparison |
//!
//! Read the four side by side: each differs from the last by a handful of lines.

mod apex;
mod args;
mod data_parallel;
mod distributed;
mod progress;
mod single;

use anyhow::Result;
use exhibit_kit::comparison::is_measured;
use report::one_thread_each;
use tch_parallel::distributed::{Env, ProcessGroup, init_process_group};
use tch_parallel::{Devices, LogicalDevice, data::DataLoaderOptions};

pub use args::{Args, Method, ORIGINALS, OptimizerKind};
pub use progress::{EpochEvent, Progress, StepEvent};

pub struct Setup<'a> {
    pub args: &'a Args,
    /// Those of this process.
    pub devices: &'a Devices,
    /// The first of them.
    pub device: LogicalDevice,
    pub group: &'a ProcessGroup,
    pub options: DataLoaderOptions,
}

pub fn train(args: &Args) -> Result<()> {
    let is_measured = is_measured()?;
    let env = Env::read()?;
    let devices = args.devices(env.as_ref())?;
    // What this thread allocates belongs to the first of them.
    let home = devices.first();
    let _on = home.guard()?;
    one_thread_each(&devices, env.as_ref().map_or(1, |env| env.world_size));
    let group = init_process_group(args.process_group(home))?;
    // Before the model is built: the first weights depend on nothing else.
    tch::manual_seed((args.seed + group.rank() as u64) as i64);
    let progress = Progress::new(args, is_measured, &devices, &group)?;
    // With ddp, batch and workers are those of this host; with apex, those of each process (S4.38).
    let sharing = if args.method == Method::Ddp { group.local_world_size() } else { 1 };
    let mut options = args.loader(home, sharing)?;
    // All ranks take equally many batches, even where hosts have different numbers of ranks.
    let smallest = group.all_gather_object(&options.batch_size)?.into_iter().min();
    options.batch_size = smallest.unwrap_or(options.batch_size);
    let setup = Setup { args, devices: &devices, device: home, group: &group, options };
    match args.method {
        Method::Single => single::train(setup, progress),
        Method::DataParallel => data_parallel::train(setup, progress),
        Method::Ddp => distributed::train(setup, progress),
        Method::Apex => apex::train(setup, progress),
    }
}
