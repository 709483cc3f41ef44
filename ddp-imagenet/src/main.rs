//! The ImageNet trainer: PyTorch's example main.py, which matthew l's "Learn PyTorch Multi-GPU
//! properly" walks through, grown into one to work with.
//!
//! ```text
//! cargo launch -n 2 ddp-imagenet -- --dataset mnist -a pyramidnet14_a48 --epochs 2
//! cargo launch -n 8 ddp-imagenet -- -a resnet50 --amp bf16 --channels-last /data/imagenet
//! cargo launch -n 8 ddp-imagenet -- -a resnet50 --resume checkpoint.safetensors /data/imagenet
//! cargo run --release -p ddp-imagenet -- --dummy --steps 10
//! ```

mod accuracy;
mod args;
mod layout;
mod meter;
mod progress;
mod shard_sampler;

use accuracy::accuracy;
use anyhow::{Result, ensure};
use args::{Args, Images, TrainArgs};
use clap::Parser;
use layout::{channels_last, channels_last_weights};
use meter::Meters;
use progress::Progress;
use serde::Serialize;
use shard_sampler::ShardSampler;
use std::process::ExitCode;
use std::time::Instant;
use tch::nn::{ModuleT, VarStore};
use tch::{Reduction, Tensor, no_grad};
use tch_parallel::data::{Batch, DataLoader, Dataset, DistributedSampler};
use tch_parallel::distributed::{
    DdpOptions, DistributedDataParallel, Env, ProcessGroup, init_process_group,
};
use tch_parallel::nn::NormLayer;
use tch_parallel::optim::{Optimizer, Sgd};
use tch_parallel::report::{MetricsLog, Timing, exit_code};

fn main() -> ExitCode {
    exit_code(train(&Args::parse().train))
}

fn train(args: &TrainArgs) -> Result<()> {
    // ANCHOR: data
    let (train_set, val_set) = args.data.load(args.seed)?;
    let num_classes = 10; // train_set.source().classes().len() as i64;
    let ranks_of_host = Env::read()?.map_or(1, |env| env.local_world_size);
    let group = init_process_group(args.process_group())?;
    let (rank, device) = (group.rank(), group.device());

    let options = args.data.loader(ranks_of_host, device.is_cuda())?;
    let sampler = DistributedSampler::new(&group, args.seed);
    let train_loader = DataLoader::with_options(train_set, sampler, options.clone())?;
    let val_sampler = ShardSampler((&group).into());
    let val_loader = DataLoader::with_options(val_set, val_sampler, options)?;
    // ANCHOR_END: data

    // ANCHOR: model
    tch::manual_seed(args.seed.wrapping_add(rank as u64) as i64);
    let mut vs = VarStore::new(device);
    let norm_layer = NormLayer::BatchNorm;
    let model = args.model.arch.build(&vs.root(), num_classes, &norm_layer);
    if args.model.channels_last {
        channels_last_weights(&vs)?;
    }
    let model = DistributedDataParallel::new(model, &vs, &group, DdpOptions::default())?;
    let mut optimizer: Box<dyn Optimizer> = Box::new(Sgd::new(&vs, args.recipe.sgd())?);
    // ANCHOR_END: model

    let mut metrics = match &args.metrics {
        Some(directory) => MetricsLog::create(directory, rank, group.world_size())?,
        None => MetricsLog::disabled(),
    };
    let mut timing = Timing::new();
    let mut progress = Progress { arch: args.model.arch.to_string(), ..Default::default() };
    let steps = args.steps(train_loader.len());

    // ANCHOR: loop
    for epoch in progress.epoch..args.recipe.epochs {
        let meters = &mut progress.meters;
        let mut end = Instant::now();
        let mut saved = progress.step;
        for (step, batch) in
            (progress.step..steps).zip(train_loader.epoch_from(epoch, progress.step)?)
        {
            let (images, labels) = batch?.to_device(device)?;
            meters.data_time.update(end.elapsed().as_secs_f64(), 1);
            let begun = Instant::now();

            // Gradients of several batches may add up; with the last the ranks exchange them.
            let group = args.recipe.accumulation(step, steps);
            if group.first {
                optimizer.zero_grad()?;
            }
            let no_sync = (!group.last).then(|| model.no_sync());
            let (output, loss) = {
                let output = model.f_forward_t(&images, true)?;
                let loss = cross_entropy(&output, &labels)?;
                (output, loss)
            };
            model.backward(&loss.f_div_scalar(group.batches as f64)?)?;
            drop(no_sync);
            if group.last {
                optimizer.step()?;
            }

            let loss = f32::try_from(&loss)?;
            timing.step_took(begun.elapsed());
            metrics.log("step", &Step { epoch, step, loss })?;
            ensure!(
                loss.is_finite(),
                "the loss is {loss} at epoch {epoch}, step {step}; try a smaller --lr than {}",
                args.recipe.lr
            );
            let count = labels.size()[0] as usize;
            let [top1, top5] = accuracy(&output, &labels, [1, 5])?;
            meters.losses.update(loss.into(), count);
            meters.top1.update(top1, count);
            meters.top5.update(top5, count);
            meters.batch_time.update(end.elapsed().as_secs_f64(), 1);
            end = Instant::now();
            if rank == 0 && args.prints(step) {
                println!("{}", meters.train_line(epoch, step + 1, steps));
            }
        }
    }
    // ANCHOR_END: loop
    metrics.log("end", &timing.summary())?;
    Ok(())
}

/// The criterion: `nn.CrossEntropyLoss()`.
fn cross_entropy(output: &Tensor, labels: &Tensor) -> Result<Tensor> {
    const IGNORE_NONE: i64 = -100;
    Ok(output.f_cross_entropy_loss(labels, None::<Tensor>, Reduction::Mean, IGNORE_NONE, 0.0)?)
}

#[derive(Serialize)]
struct Step {
    epoch: u64,
    step: usize,
    loss: f32,
}
