//! A process for each device, as Apex's ImageNet example has it.

use super::{Progress, Setup};
use anyhow::Result;
use tch::nn::VarStore;
use tch_parallel::data::{DataLoader, DistributedSampler};
use tch_parallel::distributed::{ApexDistributedDataParallel, ApexOptions};

/// Trains on `device` as one of the group's ranks.
pub fn train(setup: Setup<'_>, mut progress: Progress<'_>) -> Result<()> {
    let Setup { args, device, group, options, .. } = setup;
    progress.say_device(device);
    progress.say("==> Preparing data..");
    let (train_set, classes) = args.train_set()?;
    let sampler = DistributedSampler::new(group, args.seed);
    let loader = DataLoader::with_options(train_set, sampler, options)?;

    progress.say("==> Making model..");
    let vs = VarStore::new(device.into());
    let model = args.arch.build(&vs.root(), classes, &args.norm_layer(group));
    // As in that example: all gradients travel after the backward pass, and none need be there.
    let options = ApexOptions { delay_allreduce: true, ..Default::default() };
    let model = ApexDistributedDataParallel::new(model, &vs, group, options)?;
    let mut optimizer = args.optimizer(&vs)?;
    progress.say_parameters(&vs);

    for _epoch in 0..args.epochs {
        for batch in progress.epoch(&loader)? {
            let (images, labels) = batch?;

            let outputs = model.f_forward_t(&images, true)?;
            let loss = outputs.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;

            progress.end_batch(&loss, &outputs, &labels)?;
        }
        progress.end_epoch()?;
    }
    let waited = model.logging_data()?.waiting_time();
    progress.finish(&vs, optimizer.as_ref(), Some(waited))
}
