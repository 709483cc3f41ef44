//! One device.

use super::{Args, Progress};
use anyhow::Result;
use tch::nn::{ModuleT, VarStore};
use tch_parallel::LogicalDevice;
use tch_parallel::data::{DataLoader, DataLoaderOptions, RandomSampler};
use tch_parallel::nn::NormLayer;

/// Trains on `device`.
pub fn train(
    args: &Args,
    device: LogicalDevice,
    options: DataLoaderOptions,
    mut progress: Progress<'_>,
) -> Result<()> {
    // ANCHOR: train
    progress.say("==> Preparing data..");
    let (train_set, classes) = args.train_set()?;
    let sampler = RandomSampler::new(args.seed);
    let loader = DataLoader::with_options(train_set, sampler, options)?;

    progress.say("==> Making model..");
    let vs = VarStore::new(device.into());
    let model = args.arch.build(&vs.root(), classes, &NormLayer::BatchNorm);
    let mut optimizer = args.optimizer(&vs)?;
    progress.say_parameters(&vs);

    for epoch in 0..args.epochs {
        progress.begin_epoch(epoch, loader.len());
        for batch in loader.epoch(epoch)?.to(device).take(args.steps()) {
            let (images, labels) = batch?;
            let begun = progress.begin_batch()?;

            let outputs = model.forward_t(&images, true);
            let loss = outputs.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            loss.backward();
            optimizer.step()?;

            progress.end_batch(begun, &loss, &outputs, &labels)?;
        }
        progress.end_epoch()?;
    }
    progress.finish(&vs, optimizer.as_ref(), None)
    // ANCHOR_END: train
}
