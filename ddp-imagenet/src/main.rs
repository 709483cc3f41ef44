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
mod exhibits {
    pub mod compare;
    pub mod elastic;
    pub mod train_cifar;
}
mod meter;
mod originals;
#[cfg(test)]
mod tests;
mod train_state;

use anyhow::Result;
use args::{Args, Command, Images, TrainArgs};
use exhibits::{compare, elastic, train_cifar};
use meter::{Numbers, accuracy, test_line, train_line};
use originals::ORIGINALS;
use report::{Pass, Precision, eprintln, exit};
use serde::Serialize;
use std::borrow::Borrow;
use tch::nn::{ModuleT, SequentialT, VarStore};
use tch::{Reduction, Tensor, no_grad};
use tch_parallel::amp::autocast;
use tch_parallel::data::{DataLoader, Dataset, ImageSource, ShardSampler};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup, init_process_group};
use tch_parallel::{checkpoint, memory::keep_freed_memory, nn::channels_last_weights};
use train_state::{TrainState, resume, save};

fn main() {
    keep_freed_memory();
    let args: Args = report::parse(ORIGINALS, &[("train-cifar", train_cifar::ORIGINALS)]);
    exit(|| match &args.command {
        Some(Command::Compare(args)) => compare::compare(args),
        Some(Command::TrainCifar(args)) => train_cifar::train(args),
        None => {
            args.train.choose_algorithms();
            if args.train.elastic { elastic::train(&args.train) } else { train(&args.train) }
        }
    })
}

fn train(args: &TrainArgs) -> Result<()> {
    let seed = args.seed.unwrap_or(0);
    let (train_set, val_set) = args.data.load(args.arch, seed)?;
    let num_classes = train_set.source().classes().len() as i64;
    let group = init_process_group(args.process_group.options())?;
    let (rank, device) = (group.rank(), group.device());
    let say = |line: String| report::say(&group, line);

    let options = args.data.loader(group.local_world_size(), device.is_cuda())?;
    let (sampler, share) = args.share(&group, &options)?;
    let train_loader = DataLoader::with_options(train_set, sampler, share)?;
    let val_loader = DataLoader::with_options(val_set, ShardSampler((&group).into()), options)?;
    args.announce(&group);
    if rank == 0 && !args.evaluate {
        checkpoint::check_destination(args.checkpoint())?;
    }

    say(format!("=> creating model '{}'", args.arch));
    tch::manual_seed(seed.wrapping_add(rank as u64) as i64);
    let mut vs = VarStore::new(device);
    let model = args.arch.build(&vs.root(), num_classes, &args.norm_layer(&group));
    if args.channels_last {
        channels_last_weights(&vs)?;
    }
    let model = DistributedDataParallel::with_options(model, &vs, &group, args.ddp()?)?;

    let own = args.checkpoint();
    if args.evaluate {
        if let Some(resume) = &args.resume {
            checkpoint::load(resume.named(&own), &mut vs)?;
        }
        let validation = validate(args, &model, &val_loader, &group)?;
        tell_skipped([train_loader.dataset(), val_loader.dataset()], rank);
        return Ok(args.report.metrics(&group)?.log("validation", &validation)?);
    }

    let mut state = TrainState::new(args, vs, Some(&group))?;
    let (progress, meters, mut best) = resume(&mut state, args, &group)?;

    let precision = args.recipe.amp.map(Precision::kind);
    let lr = state.optimizer.param_groups()[0].initial_lr.unwrap_or(args.recipe.lr);
    let mut run = args.report.start(&group, lr, progress)?.with_meters(meters);
    run = run.with_lines(args.print_freq, args.steps).with_virtual_ranks(args.virtual_ranks);
    for epoch in progress.epoch..args.recipe.epochs {
        let batches = run.epoch(&train_loader)?;
        let (first_step, steps) = run.pass().position();
        for (step, batch) in (first_step..).zip(batches) {
            // ANCHOR: step
            // The gradients of a group of batches add up; the ranks exchange them with its last batch.
            let accumulated = args.recipe.accumulated(step, first_step..steps);
            let is_last = step + 1 == accumulated.end;
            if step == accumulated.start {
                state.optimizer.zero_grad()?;
            }
            let no_sync = (!is_last).then(|| model.no_sync());
            let mut numbers = Numbers::default();
            // Without --virtual-ranks, one share: the batch.
            for share in model.shares(batch?, run.step_seed(seed as i64)) {
                let (images, labels) = share?;
                let images = args.layout(images)?;
                let (output, loss) = autocast(device, precision, || -> Result<_> {
                    let output = model.f_forward_t(&images, true)?;
                    let loss = cross_entropy(&output, &labels)?;
                    Ok((output, loss))
                })??;
                // Not f_div_scalar, which panics where it should return an error.
                let part = loss.f_div(&Tensor::from(accumulated.len() as f32))?;
                model.backward(&state.scaler.scale(&part)?)?;
                numbers.push(&loss, &output, &labels)?;
            }
            drop(no_sync);
            if is_last {
                state.scaler.step(&mut *state.optimizer)?;
                state.scaler.update()?;
            }
            // ANCHOR_END: step

            // ANCHOR: numbers
            // The numbers of earlier steps may still be on their way from a GPU. What is printed or
            // saved waits for all of them.
            let [loss, top1, top5] = numbers.mean(&model)?;
            if run.step([&loss, &top1, &top5], numbers.samples)? {
                say(train_line(epoch, run.pass().position(), run.pass().meters()));
            }
            if is_last && run.is_mid_epoch() && args.saves(accumulated) {
                save(&mut state, &own, &mut run, best, &group)?;
            }
            // ANCHOR_END: numbers
        }

        let [train_loss, ..] = run.end_epoch()?;
        let validation = validate(args, &model, &val_loader, &group)?;
        run.log("epoch", &Epoch { epoch, train_loss, lr: state.optimizer.lr(), validation })?;
        state.scheduler.step(&mut *state.optimizer)?;

        let is_best = validation.accuracy > best;
        best = best.max(validation.accuracy);
        // First, because a job that is killed before the other save will have this epoch before it again.
        if is_best {
            checkpoint::save(args.model_best(), &state.vs, &group)?;
        }
        save(&mut state, &own, &mut run, best, &group)?;
    }
    tell_skipped([train_loader.dataset(), val_loader.dataset()], rank);
    run.end()
}

fn tell_skipped(sets: [&Images; 2], rank: usize) {
    if let skipped @ 1.. = sets.iter().map(|images| images.source().skipped()).sum::<usize>() {
        eprintln!("[rank {rank}] images left out because they cannot be read: {skipped}");
    }
}

// ANCHOR: validate
/// The mean loss and the accuracy. The ranks divide the images among themselves, and each image
/// counts once.
fn validate(
    args: &TrainArgs,
    model: &DistributedDataParallel<impl Borrow<SequentialT>>,
    loader: &DataLoader<impl Dataset<Batch = (Tensor, Tensor)> + 'static>,
    group: &ProcessGroup,
) -> Result<Validation> {
    // By now every rank has running statistics of its own batches; rank 0's are saved.
    model.sync_buffers()?;
    let mut pass = Pass::new(Some(args.print_freq), args.steps);
    for batch in pass.batches(loader.epoch(0)?, group.device()) {
        let (images, labels) = batch?;
        let images = args.layout(images)?;
        let output = no_grad(|| model.module().borrow().forward_t(&images, false));
        let loss = cross_entropy(&output, &labels)?;
        let [top1, top5] = accuracy(&output, &labels, [1, 5])?;
        if pass.step([&loss, &top1, &top5], labels.size()[0])? {
            report::say(group, test_line(pass.position(), pass.meters()));
        }
    }
    let [val_loss, acc1, acc5] = pass.all_reduce(group)?;
    report::say(group, format!(" * Acc@1 {acc1:.3} Acc@5 {acc5:.3}"));
    Ok(Validation { val_loss, accuracy: acc1 / 100.0, accuracy_top5: acc5 / 100.0 })
}
// ANCHOR_END: validate

/// The criterion, `nn.CrossEntropyLoss()`: the mean over the batch.
fn cross_entropy(output: &Tensor, labels: &Tensor) -> Result<Tensor> {
    // -100 is PyTorch's ignore_index.
    Ok(output.f_cross_entropy_loss(labels, None::<Tensor>, Reduction::Mean, -100, 0.0)?)
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
