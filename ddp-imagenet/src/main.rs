//! The ImageNet trainer: PyTorch's example main.py, which matthew l's "Learn PyTorch Multi-GPU
//! properly" explains, with what everyday work requires.
//!
//! ```text
//! cargo launch -n 2 ddp-imagenet -- --dataset mnist -a pyramidnet14_a48 --epochs 2
//! cargo launch -n 8 ddp-imagenet -- -a resnet50 --amp bf16 --channels-last /data/imagenet
//! cargo launch -n 8 ddp-imagenet -- -a resnet50 --resume checkpoint.safetensors /data/imagenet
//! cargo run --release -p ddp-imagenet -- --dummy --steps 10
//! cargo run --release -p ddp-imagenet -- compare --devices 2xcpu --plot charts
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod exhibits;
mod layout;
mod meter;
mod originals;
mod shard_sampler;
#[cfg(test)]
mod tests;
mod train_state;

use anyhow::Result;
use args::{Args, Command, Images, Source, TrainArgs};
use exhibits::{compare, train_cifar};
use layout::channels_last_weights;
use meter::{Clock, Meters, accuracy};
use originals::{ORIGINALS, TRAIN_CIFAR};
use report::{InFlight, Resume, Step, Timing, eprintln, exit};
use serde::Serialize;
use shard_sampler::ShardSampler;
use std::time::Instant;
use tch::nn::{ModuleT, SequentialT, VarStore};
use tch::{Reduction, Tensor, no_grad};
use tch_parallel::Event;
use tch_parallel::amp::{GradScaler, autocast};
use tch_parallel::backends::cudnn;
use tch_parallel::checkpoint::{self, Generators};
use tch_parallel::data::{DataLoader, DataLoaderOptions, DistributedSampler, ImageSource};
use tch_parallel::distributed::{
    DdpOptions, DistributedDataParallel, ProcessGroup, init_process_group,
};
use tch_parallel::memory::keep_freed_memory;
use tch_parallel::nn::NormLayer;
use tch_parallel::optim::lr_scheduler::LrScheduler;
use train_state::{Progress, TrainState};

fn main() {
    keep_freed_memory();
    let args: Args = report::parse(ORIGINALS, &[("train-cifar", TRAIN_CIFAR)]);
    exit(|| match &args.command {
        Some(Command::Compare(args)) => compare::compare(args),
        Some(Command::TrainCifar(args)) => train_cifar::train(args),
        None => train(&args.train),
    })
}

fn train(args: &TrainArgs) -> Result<()> {
    let seed = args.seed.unwrap_or(0);
    let (train_set, val_set) = args.data.load(seed)?;
    let num_classes = train_set.source().classes().len() as i64;
    let group = init_process_group(args.process_group.options())?;
    let options = args.data.loader(group.local_world_size())?;
    let (rank, device) = (group.rank(), group.device());
    let say = |line: String| report::say(&group, line);
    if args.data.source() == Source::Synthetic {
        say("=> Dummy data is used: noise, from which nothing can be learnt".into());
    }

    let options = DataLoaderOptions { pin_memory: device.is_cuda(), ..options };
    let sampler = DistributedSampler::new(&group, seed);
    let train_loader = DataLoader::with_options(train_set, sampler, options.clone())?;
    let val_sampler = ShardSampler((&group).into());
    let val_loader = DataLoader::with_options(val_set, val_sampler, options)?;

    // As in main.py: cuDNN tries which algorithms are fastest, unless the run is to be repeatable.
    cudnn::set_deterministic(args.seed.is_some());
    cudnn::set_benchmark(args.seed.is_none());
    if device.is_cuda() && args.seed.is_some() {
        say("=> --seed: cuDNN takes only deterministic algorithms, which may be much slower".into());
    }
    if rank == 0 && !args.evaluate {
        checkpoint::check_destination(args.checkpoint())?;
    }

    say(format!("=> creating model '{}'", args.arch));
    tch::manual_seed(seed.wrapping_add(rank as u64) as i64);
    let mut vs = VarStore::new(device);
    let norm_layer = match args.sync_bn {
        true => NormLayer::SyncBatchNorm(group.clone()),
        false => NormLayer::BatchNorm,
    };
    let model = args.arch.build(&vs.root(), num_classes, &norm_layer);
    if args.channels_last {
        channels_last_weights(&vs)?;
    }
    let (comm_hook, find_unused_parameters) =
        (args.recipe.comm_hook(), args.find_unused_parameters);
    let options = DdpOptions { comm_hook, find_unused_parameters, ..Default::default() };
    let model = DistributedDataParallel::with_options(model, &vs, &group, options)?;

    let mut metrics = args.report.metrics(&group)?;
    let mut profiler = args.report.profiler(&group)?;
    let mut timing = Timing::new();

    let own = args.checkpoint();
    if args.evaluate {
        match &args.resume {
            Some(Resume::Auto) => checkpoint::load(&own, &mut vs)?,
            Some(Resume::File(file)) => checkpoint::load(file, &mut vs)?,
            None => {}
        }
        let validation = validate(args, &model, &val_loader, &group)?;
        return Ok(metrics.log("validation", &validation)?);
    }
    let resumed = args.resume.as_ref().map_or(Ok(None), |resume| resume.file(&own, &group))?;

    // ANCHOR: state
    let mut optimizer = args.recipe.optimizer(&vs, &group)?;
    let mut scheduler = LrScheduler::new(&mut *optimizer, args.recipe.schedule()?)?;
    let scaler = GradScaler::new(args.recipe.scaler())?;
    for _epoch in 0..args.start_epoch {
        scheduler.step(&mut *optimizer)?;
    }
    let progress = Progress { epoch: args.start_epoch, ..Default::default() };
    let arch = args.arch.to_string();
    let meters = Meters::default();
    let mut state = TrainState { arch, vs, optimizer, scheduler, scaler, progress, meters };
    if let Some(path) = resumed {
        say(format!("=> loading checkpoint '{}'", path.display()));
        let generators = state.resume(path, &group)?;
        let Progress { epoch, step, .. } = state.progress;
        say(format!("=> loaded checkpoint '{}' (epoch {epoch}, step {step})", path.display()));
        if generators != Generators::Restored {
            say(format!("=> not bit-identical to an uninterrupted run: {generators}"));
        }
    }
    // ANCHOR_END: state

    let precision = args.recipe.precision();
    for epoch in state.progress.epoch..args.recipe.epochs {
        let mut in_flight = InFlight::default();
        let (mut clock, mut free_since) = (Clock::start(), Instant::now());
        let Progress { step: first_step, images: consumed, .. } = state.progress;
        let batches = train_loader.epoch_after(epoch, consumed)?.to(device);
        let steps = args.steps(first_step + batches.size_hint().0);
        for (step, batch) in (first_step..steps).zip(batches) {
            let (images, labels) = batch?;
            let images = args.layout(images)?;
            let data_seconds = free_since.elapsed().as_secs_f64();
            let begun = Event::record(device)?;

            // ANCHOR: step
            // The gradients of a group of batches add up; the ranks exchange them with its last batch.
            let accumulated = args.recipe.accumulated(step, first_step..steps);
            let is_last = step + 1 == accumulated.end;
            if step == accumulated.start {
                state.optimizer.zero_grad()?;
            }
            let no_sync = (!is_last).then(|| model.no_sync());
            let (output, loss) = autocast(device, precision, || -> Result<_> {
                let output = model.f_forward_t(&images, true)?;
                let loss = cross_entropy(&output, &labels)?;
                Ok((output, loss))
            })??;
            // Not f_div_scalar, which panics where it should return an error.
            let share = loss.f_div(&Tensor::from(accumulated.len() as f32))?;
            model.backward(&state.scaler.scale(&share)?)?;
            drop(no_sync);
            if is_last {
                state.scaler.step(&mut *state.optimizer)?;
                state.scaler.update()?;
            }
            // ANCHOR_END: step

            timing.step_between(begun, Event::record(device)?)?;
            profiler.step()?;
            let (count, saves) = (labels.size()[0], is_last && args.saves(accumulated));
            let [top1, top5] = accuracy(&output, &labels, [1, 5])?;
            // ANCHOR: numbers
            // The numbers of earlier steps may still be on their way from a GPU. What is printed or
            // saved waits for all of them.
            in_flight.push((step, count), [&loss, &top1, &top5])?;
            let waits = args.prints(step) || saves || step + 1 == steps;
            for ((step, count), [loss, top1, top5]) in in_flight.arrived(waits)? {
                let event = Step { epoch, step, loss: loss as f32 };
                metrics.log("step", &event)?;
                event.expect_finite_loss(args.recipe.lr, &group)?;
                state.meters.add(loss, [top1, top5], count);
            }
            // ANCHOR_END: numbers
            free_since = Instant::now();
            clock.step(data_seconds);
            if waits {
                clock.read(&mut state.meters);
            }
            if args.prints(step) {
                say(state.meters.train_line(epoch, step + 1, steps));
            }
            state.progress.step = step + 1;
            state.progress.images += count as usize * group.world_size();
            if saves {
                state.save(&own, &group)?;
            }
        }

        let train_loss = state.meters.losses.all_reduce(&group)?;
        let validation = validate(args, &model, &val_loader, &group)?;
        metrics.log("epoch", &Epoch { epoch, train_loss, lr: state.optimizer.lr(), validation })?;
        state.scheduler.step(&mut *state.optimizer)?;

        let best = state.end_epoch(validation.accuracy);
        state.save(&own, &group)?;
        if best {
            checkpoint::save(args.model_best(), &state.vs, &group)?;
        }
    }
    let skipped =
        train_loader.dataset().source().skipped() + val_loader.dataset().source().skipped();
    if skipped > 0 {
        eprintln!("[rank {rank}] images left out because they cannot be read: {skipped}");
    }
    metrics.log("end", &timing.summary())?;
    Ok(())
}

// ANCHOR: validate
/// The mean loss and the accuracy. The ranks divide the images among themselves, and each image
/// counts once.
fn validate(
    args: &TrainArgs,
    model: &DistributedDataParallel<SequentialT>,
    loader: &DataLoader<Images>,
    group: &ProcessGroup,
) -> Result<Validation> {
    // By now every rank has running statistics of its own batches; rank 0's are saved.
    model.sync_buffers()?;
    let steps = args.steps(loader.len());
    let (mut meters, mut in_flight) = (Meters::default(), InFlight::default());
    let mut clock = Clock::start();
    for (step, batch) in (0..steps).zip(loader.epoch(0)?.to(group.device())) {
        let (images, labels) = batch?;
        let images = args.layout(images)?;
        let output = no_grad(|| model.module().forward_t(&images, false));
        let loss = cross_entropy(&output, &labels)?;
        let [top1, top5] = accuracy(&output, &labels, [1, 5])?;
        in_flight.push(labels.size()[0], [&loss, &top1, &top5])?;
        let waits = args.prints(step) || step + 1 == steps;
        for (count, [loss, top1, top5]) in in_flight.arrived(waits)? {
            meters.add(loss, [top1, top5], count);
        }
        clock.step(0.0);
        if args.prints(step) {
            clock.read(&mut meters);
            report::say(group, meters.test_line(step + 1, steps));
        }
    }
    let val_loss = meters.losses.all_reduce(group)?;
    let [acc1, acc5] = [meters.top1.all_reduce(group)?, meters.top5.all_reduce(group)?];
    report::say(group, format!(" * Acc@1 {acc1:.3} Acc@5 {acc5:.3}"));
    Ok(Validation { val_loss, accuracy: acc1 / 100.0, accuracy_top5: acc5 / 100.0 })
}
// ANCHOR_END: validate

/// The criterion, `nn.CrossEntropyLoss()`: the mean over the batch.
fn cross_entropy(output: &Tensor, labels: &Tensor) -> Result<Tensor> {
    const IGNORE_INDEX: i64 = -100;
    Ok(output.f_cross_entropy_loss(labels, None::<Tensor>, Reduction::Mean, IGNORE_INDEX, 0.0)?)
}

#[derive(Serialize)]
struct Epoch {
    epoch: u64,
    /// The learning rate of the epoch that has ended.
    lr: f64,
    train_loss: f64,
    #[serde(flatten)]
    validation: Validation,
}

#[derive(Serialize, Clone, Copy)]
struct Validation {
    val_loss: f64,
    /// The share of images whose class is the first guess, as in `ddp-mnist`.
    accuracy: f64,
    /// The share of images whose class is among the first five guesses.
    accuracy_top5: f64,
}
