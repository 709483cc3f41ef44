//! One device.

use super::{Progress, Setup};
use anyhow::Result;
use tch::nn::{ModuleT, VarStore};
use tch_parallel::{data::DataLoader, data::RandomSampler, nn::NormLayer};

pub fn train(setup: Setup<'_>, mut progress: Progress<'_>) -> Result<()> {
    let Setup { args, device, options, .. } = setup;
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

    for _epoch in 0..args.epochs {
        for batch in progress.epoch(&loader)? {
            let (images, labels) = batch?;

            let outputs = model.forward_t(&images, true);
            let loss = outputs.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            loss.backward();
            optimizer.step()?;

            progress.end_batch(&loss, &outputs, &labels)?;
        }
        progress.end_epoch()?;
    }
    progress.finish(&vs, optimizer.as_ref(), None)
    // ANCHOR_END: train
}
