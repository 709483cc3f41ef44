//! A process for each device, with a model of its own; only gradients travel.

use super::{Args, Progress};
use anyhow::Result;
use tch::nn::VarStore;
use tch_parallel::LogicalDevice;
use tch_parallel::data::{DataLoader, DataLoaderOptions, DistributedSampler};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup};

/// Trains on `device` as one of the group's ranks.
pub fn train(
    args: &Args,
    device: LogicalDevice,
    group: &ProcessGroup,
    options: DataLoaderOptions,
    mut progress: Progress<'_>,
) -> Result<()> {
    // ANCHOR: train
    progress.say_device(device);
    progress.say("==> Preparing data..");
    let (train_set, classes) = args.train_set()?;
    let sampler = DistributedSampler::new(group, args.seed);
    let loader = DataLoader::with_options(train_set, sampler, options)?;

    progress.say("==> Making model..");
    let vs = VarStore::new(device.into());
    let model = args.arch.build(&vs.root(), classes, &args.norm_layer(group));
    let model = DistributedDataParallel::new(model, &vs, group)?;
    let mut optimizer = args.optimizer(&vs)?;
    progress.say_parameters(&vs);

    for epoch in 0..args.epochs {
        progress.begin_epoch(epoch, loader.len());
        for batch in loader.epoch(epoch)?.to(device).take(args.steps()) {
            let (images, labels) = batch?;
            let begun = progress.begin_batch()?;

            let outputs = model.f_forward_t(&images, true)?;
            let loss = outputs.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;

            progress.end_batch(begun, &loss, &outputs, &labels)?;
        }
        progress.end_epoch()?;
    }
    let waited = model.logging_data()?.waiting_time();
    progress.finish(&vs, optimizer.as_ref(), Some(waited))
    // ANCHOR_END: train
}
