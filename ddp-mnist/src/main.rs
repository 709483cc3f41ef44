//! Train on MNIST with several ranks, after Oleg Boiko's "Distributed training with PyTorch".
//!
//! ```text
//! cargo launch -n 2 ddp-mnist                                  two ranks
//! cargo run --release -p ddp-mnist                             one process
//! torchrun --no-python --nproc-per-node 2 target/release/ddp-mnist
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod comm_hook;
mod model;
mod progress;
#[cfg(test)]
mod tests;

use anyhow::Result;
use args::Args;
use progress::{Checkpoint, Progress};
use report::{InFlight, Step, Timing, exit, println, progress_bar, say};
use serde::Serialize;
use tch::nn::{ModuleT, VarStore};
use tch::{Device, no_grad};
use tch_parallel::Event;
use tch_parallel::checkpoint;
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, SequentialSampler};
use tch_parallel::distributed::{AverageMeter, DistributedDataParallel, init_process_group};
use tch_parallel::optim::{Optimizer, Sgd};

fn main() {
    exit(|| train(&report::parse(&[], &[])))
}

fn train(args: &Args) -> Result<()> {
    // ANCHOR: data
    let (train_set, test_set) = args.data()?;
    let group = init_process_group(args.process_group.options())?;
    let device = group.device();
    if group.rank() == 0 && !args.no_save {
        checkpoint::check_destination(&args.save)?;
    }
    let checkpoint = Checkpoint::new(args, &group)?;

    // Every rank takes its own part of the same permutation: the sampler shuffles, not the loader.
    let sampler = DistributedSampler {
        shuffle: !args.no_shuffle,
        ..DistributedSampler::new(&group, args.sampler_seed)
    };
    let options = args.loader(device.is_cuda());
    let train_loader = DataLoader::with_options(train_set, sampler, options.clone())?;
    let test_loader = DataLoader::with_options(test_set, SequentialSampler, options)?;
    // ANCHOR_END: data

    // ANCHOR: model
    // Each rank has its own seed, so that dropout differs; wrapping broadcasts rank 0's weights.
    tch::manual_seed(args.seed.wrapping_add(group.rank() as i64));
    let mut vs = VarStore::new(device);
    let mlp = model::mlp(&vs.root());
    if let Some(path) = &args.load {
        checkpoint::load(path, &mut vs)?;
    }
    let model = DistributedDataParallel::with_options(mlp, &vs, &group, args.ddp()?)?;
    let mut optimizer = Sgd::new(&vs, args.sgd())?;
    let mut progress = checkpoint.resume(&mut vs, &mut optimizer)?;
    // ANCHOR_END: model

    // ANCHOR: checks
    // Each rank prints its device and its number of batches: is the work divided?
    let (rank, world_size, batches) = (group.rank(), group.world_size(), train_loader.len());
    println!("rank={rank} of {world_size}, device={device:?}, len(train_loader)={batches}");
    // ANCHOR_END: checks

    let mut metrics = args.report.metrics(&group)?;
    let mut profiler = args.report.profiler(&group)?;
    let mut timing = Timing::new();

    // ANCHOR: loop
    for epoch in progress.epoch..args.epochs {
        let mut train_loss = AverageMeter::default();
        let mut in_flight = InFlight::default();
        let batches = train_loader.epoch_after(epoch, progress.samples)?.to(device);
        let steps = progress.step + batches.size_hint().0;
        let bar = progress_bar(batches.size_hint().0 as u64, group.rank());
        for batch in batches {
            let (images, labels) = batch?;
            let begun = Event::record(device)?;

            let loss = model.f_forward_t(&images, true)?.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;

            timing.step_between(begun, Event::record(device)?)?;
            profiler.step()?;
            let samples = labels.size()[0] as usize;
            // The losses of earlier steps may still be on their way from a GPU. What an epoch or a
            // checkpoint ends with waits for all of them.
            in_flight.push((progress.step, samples), [&loss])?;
            progress.step += 1;
            progress.samples += samples * group.world_size();
            let waits = progress.step == steps || checkpoint.is_due(progress);
            for ((step, samples), [loss]) in in_flight.arrived(waits)? {
                let event = Step { epoch, step, loss: loss as f32 };
                metrics.log("step", &event)?;
                event.expect_finite_loss(args.lr, &group)?;
                train_loss.update(loss, samples);
                bar.set_message(format!("training batch_loss={loss:.4}"));
                bar.inc(1);
            }
            // After the last step comes the checkpoint of the whole epoch.
            if progress.step < steps && checkpoint.is_due(progress) {
                checkpoint.save(&mut vs, &mut optimizer, progress)?;
            }
        }
        bar.finish_and_clear();

        let train_loss = train_loss.all_reduce(&group)?;
        let (val_loss, accuracy) = evaluate(model.module(), &test_loader, device)?;
        metrics.log("epoch", &Epoch { epoch, train_loss, val_loss, accuracy })?;
        let losses = format!("train_loss={train_loss:.4}, val_loss={val_loss:.4}");
        say(&group, format!("Epoch={epoch}, {losses}, accuracy={accuracy:.4}"));
        progress = Progress { epoch: epoch + 1, ..Default::default() };
        checkpoint.save(&mut vs, &mut optimizer, progress)?;
    }
    // ANCHOR_END: loop

    // ANCHOR: save
    if !args.no_save {
        checkpoint::save(&args.save, &vs, &group)?;
    }
    // ANCHOR_END: save
    metrics.log("end", &timing.summary())?;
    Ok(())
}

// ANCHOR: evaluate
/// The mean loss and the accuracy. Every rank evaluates the whole test set, so that all of them get
/// the same numbers without a collective.
fn evaluate(
    model: &impl ModuleT,
    loader: &DataLoader<Mnist>,
    device: Device,
) -> Result<(f64, f64)> {
    let (mut loss, mut accuracy) = (AverageMeter::default(), AverageMeter::default());
    let mut in_flight = InFlight::default();
    for batch in loader.epoch(0)?.to(device) {
        let (images, labels) = batch?;
        let logits = no_grad(|| model.forward_t(&images, false));
        let loss = logits.cross_entropy_for_logits(&labels);
        in_flight.push(labels.size()[0], [&loss, &logits.accuracy_for_logits(&labels)])?;
    }
    for (count, [batch_loss, batch_accuracy]) in in_flight.arrived(true)? {
        loss.update(batch_loss, count as usize);
        accuracy.update(batch_accuracy, count as usize);
    }
    Ok((loss.avg(), accuracy.avg()))
}
// ANCHOR_END: evaluate

#[derive(Serialize)]
struct Epoch {
    epoch: u64,
    train_loss: f64,
    val_loss: f64,
    accuracy: f64,
}
