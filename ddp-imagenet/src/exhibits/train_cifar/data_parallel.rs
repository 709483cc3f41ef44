//! Several devices of one process, each with a replica of the model and a part of the batch.

use super::{Progress, Setup};
use anyhow::Result;
use tch::nn::{Path, VarStore};
use tch_parallel::data::{DataLoader, RandomSampler};
use tch_parallel::{data_parallel::DataParallel, nn::NormLayer};

/// Trains on all of the devices, with the model on the first.
pub fn train(setup: Setup<'_>, mut progress: Progress<'_>) -> Result<()> {
    let Setup { args, devices, options, .. } = setup;
    // ANCHOR: train
    let device = devices.first();
    progress.say("==> Preparing data..");
    let (train_set, classes) = args.train_set()?;
    let sampler = RandomSampler::new(args.seed);
    let loader = DataLoader::with_options(train_set, sampler, options)?;

    progress.say("==> Making model..");
    let vs = VarStore::new(device.into());
    let replica = |path: &Path<'_>| args.arch.build(path, classes, &NormLayer::BatchNorm);
    let model = DataParallel::new(replica, &vs, devices)?;
    let mut optimizer = args.optimizer(&vs)?;
    progress.say_parameters(&vs);
    model.set_trace(&progress.trace);

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
    progress.finish(&vs, optimizer.as_ref(), None)
    // ANCHOR_END: train
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddp_imagenet::models::Arch;
    use exhibit_kit::weights::{distance, gradients, set_weights};
    use tch::{Device, Kind, Tensor, nn::ModuleT, nn::SequentialT};
    use tch_parallel::Devices;

    const IMAGES: i64 = 8;

    /// Each with more contrast than the one before, so that halves of a batch differ.
    fn batch() -> (Tensor, Tensor) {
        let numbers = Tensor::arange(IMAGES * 3 * 32 * 32, (Kind::Float, Device::Cpu));
        let labels = Tensor::arange(IMAGES, (Kind::Int64, Device::Cpu));
        let images = (numbers * 0.7).sin().view([IMAGES, 3, 32, 32]);
        (images * labels.view([-1, 1, 1, 1]), labels)
    }

    fn build(path: &Path<'_>) -> SequentialT {
        "pyramidnet8_a6".parse::<Arch>().unwrap().build(path, 10, &NormLayer::BatchNorm)
    }

    /// The gradients of one device, the parameters in a row.
    fn on_one_device(images: &Tensor, labels: &Tensor) -> (Tensor, VarStore) {
        let vs = VarStore::new(Device::Cpu);
        let model = build(&vs.root());
        set_weights(&vs, 0.1);
        model.forward_t(images, true).cross_entropy_for_logits(labels).backward();
        (gradients(&vs), vs)
    }

    /// Each replica normalises its own half, so the gradients are not those of the whole batch on
    /// one device, but what DistributedDataParallel makes of two ranks with these halves.
    #[test]
    fn the_gradients_are_the_mean_of_those_of_the_halves() {
        let (images, labels) = batch();
        let vs = VarStore::new(Device::Cpu);
        let model = DataParallel::new(build, &vs, &Devices::cpu(2).unwrap()).unwrap();
        set_weights(&vs, 0.1);
        let outputs = model.f_forward_t(&images, true).unwrap();
        model.backward(&outputs.cross_entropy_for_logits(&labels)).unwrap();
        let found = gradients(&vs);

        let halves = images.chunk(2, 0).into_iter().zip(labels.chunk(2, 0));
        let halves: Vec<_> = halves.map(|(x, y)| on_one_device(&x, &y)).collect();
        let [(first, first_vs), (second, _)] = &halves[..] else { panic!("two halves") };
        let mean = (first + second) / 2.0;
        // Sums in another order, of f32.
        assert!(distance(&found, &mean) < 1e-5, "{}", distance(&found, &mean));
        let (whole, _) = on_one_device(&images, &labels);
        assert!(distance(&found, &whole) > 0.1, "{}", distance(&found, &whole));

        // Of the running statistics the first replica's survive.
        let [mean, expected] =
            [&vs, first_vs].map(|vs| vs.variables()["bn_out.running_mean"].shallow_clone());
        assert!(distance(&mean, &expected) < 1e-5);
    }
}
