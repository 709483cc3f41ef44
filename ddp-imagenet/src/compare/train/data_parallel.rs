//! Several devices of one process, each with a replica of the model and a part of the batch.

use super::{Args, Progress};
use anyhow::Result;
use tch::nn::{Path, VarStore};
use tch_parallel::Devices;
use tch_parallel::data::{Batch, DataLoader, RandomSampler};
use tch_parallel::data_parallel::DataParallel;
use tch_parallel::nn::NormLayer;

/// Trains on all of the devices, with the model on the first.
pub fn train(args: &Args, devices: &Devices, progress: &mut Progress<'_>) -> Result<()> {
    // ANCHOR: train
    let device = devices.first();
    progress.say("==> Preparing data..");
    let (train_set, classes) = args.train_set()?;
    let sampler = RandomSampler { seed: args.seed };
    let loader = DataLoader::with_options(train_set, sampler, args.loader(device)?)?;

    progress.say("==> Making model..");
    let vs = VarStore::new(device.into());
    let replica = |path: &Path<'_>| args.arch.build(path, classes, &NormLayer::BatchNorm);
    let model = DataParallel::new(&vs, devices, replica)?;
    let mut optimizer = args.optimizer(&vs)?;
    progress.say_parameters(&vs);
    model.set_trace(progress.trace());

    for epoch in 0..args.epochs {
        progress.begin_epoch(epoch, loader.len());
        for batch in loader.epoch(epoch)?.take(args.steps()) {
            let batch = batch?;
            progress.begin_batch()?;
            let (images, labels) = batch.to_device(device.into())?;

            let outputs = model.f_forward_t(&images, true)?;
            let loss = outputs.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;

            progress.end_batch(&loss, &outputs, &labels)?;
        }
        progress.end_epoch()?;
    }
    progress.finish(&vs, optimizer.as_ref(), None)
    // ANCHOR_END: train
}
