//! Train on MNIST with several ranks, after Oleg Boiko's "Distributed training with PyTorch".
//!
//! ```text
//! cargo launch -n 2 ddp-mnist                                  two ranks
//! cargo run --release -p ddp-mnist                             one process
//! torchrun --no-python --nproc-per-node 2 target/release/ddp-mnist
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod checkpoint;
mod exhibits {
    pub mod elastic;
}
mod model;
#[cfg(test)]
mod tests;

use anyhow::Result;
use args::Args;
use checkpoint::Checkpoint;
use report::{Pass, Run, exit, println, say};
use serde::Serialize;
use tch::nn::{ModuleT, VarStore};
use tch::{Device, no_grad};
use tch_parallel::checkpoint::{check_destination, load, save};
use tch_parallel::data::{DataLoader, DistributedSampler, Mnist, SequentialSampler};
use tch_parallel::distributed::{DistributedDataParallel, ProcessGroup, init_process_group};
use tch_parallel::optim::{Optimizer, Sgd};

fn main() {
    let args: Args = report::parse(&[], &[]);
    let is_elastic = args.elastic || args.virtual_ranks.is_some();
    exit(|| if is_elastic { exhibits::elastic::train(&args) } else { train(&args) })
}

fn train(args: &Args) -> Result<()> {
    // ANCHOR: data
    let (train_set, test_set) = args.data.load()?;
    let group = init_process_group(args.process_group.options())?;
    let device = group.device();
    if group.rank() == 0 && !args.no_save {
        check_destination(&args.save)?;
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
        load(path, &mut vs)?;
    }
    let model = DistributedDataParallel::with_options(mlp, &vs, &group, args.ddp()?)?;
    let mut optimizer = Sgd::new(&vs, args.sgd())?;
    let progress = checkpoint.resume(&mut vs, &mut optimizer)?;
    // ANCHOR_END: model

    // ANCHOR: checks
    // Each rank prints its device and its number of batches: is the work divided?
    let (rank, world_size, batches) = (group.rank(), group.world_size(), train_loader.len());
    println!("rank={rank} of {world_size}, device={device:?}, len(train_loader)={batches}");
    // ANCHOR_END: checks

    // ANCHOR: loop
    let mut run = args.report.start(&group, optimizer.lr(), progress)?;
    for epoch in progress.epoch..args.epochs {
        for batch in run.epoch(&train_loader)? {
            let (images, labels) = batch?;
            let loss = model.f_forward_t(&images, true)?.cross_entropy_for_logits(&labels);
            optimizer.zero_grad()?;
            model.backward(&loss)?;
            optimizer.step()?;
            run.step([&loss], labels.size()[0])?;
            checkpoint.save_if_due(&mut vs, &mut optimizer, &mut run)?;
        }

        let [train_loss] = run.end_epoch()?;
        let (val_loss, accuracy) = evaluate(model.module(), &test_loader, device)?;
        Epoch { epoch, train_loss, val_loss, accuracy }.tell(&mut run, &group)?;
        checkpoint.save(&mut vs, &mut optimizer, run.progress())?;
    }
    // ANCHOR_END: loop

    // ANCHOR: save
    if !args.no_save {
        save(&args.save, &vs, &group)?;
    }
    // ANCHOR_END: save
    run.end()
}

// ANCHOR: evaluate
/// The mean loss and the accuracy. Every rank evaluates the whole test set, so that all of them get
/// the same numbers without a collective.
fn evaluate(
    model: &impl ModuleT,
    loader: &DataLoader<Mnist>,
    device: Device,
) -> Result<(f64, f64)> {
    let mut pass = Pass::default();
    for batch in pass.batches(loader.epoch(0)?, device) {
        let (images, labels) = batch?;
        let logits = no_grad(|| model.forward_t(&images, false));
        let loss = logits.cross_entropy_for_logits(&labels);
        pass.step([&loss, &logits.accuracy_for_logits(&labels)], labels.size()[0])?;
    }
    let [loss, accuracy] = pass.meters().numbers;
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

impl Epoch {
    fn tell(&self, run: &mut Run<'_, 1>, group: &ProcessGroup) -> Result<()> {
        let Epoch { epoch, train_loss, val_loss, accuracy } = self;
        run.log("epoch", self)?;
        let losses = format!("train_loss={train_loss:.4}, val_loss={val_loss:.4}");
        say(group, format!("Epoch={epoch}, {losses}, accuracy={accuracy:.4}"));
        Ok(())
    }
}
