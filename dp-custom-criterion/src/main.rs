//! BERT, after matthew l's "Learn PyTorch Multi-GPU properly", which trains codertimo's
//! BERT-pytorch.
//!
//! ```text
//! cargo run --release -p dp-custom-criterion -- --steps 20
//! cargo run --release -p dp-custom-criterion -- vocab --corpus corpus.txt --output vocab.txt
//! cargo run --release -p dp-custom-criterion -- --corpus corpus.txt --vocab vocab.txt
//! ```

mod args;
mod data;
mod loss;
mod model;
mod schedule;

use anyhow::{Result, ensure};
use args::{Args, Command, TrainArgs, VocabArgs};
use clap::Parser;
use data::{BertDataset, Vocab};
use loss::bert_loss;
use model::LanguageModel;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Instant;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use tch_parallel::checkpoint;
use tch_parallel::data::{Batch, DataLoader, SequentialSampler};
use tch_parallel::distributed::ProcessGroup;
use tch_parallel::optim::Adam;
use tch_parallel::report::{MetricsLog, Timing, exit_code};

fn main() -> ExitCode {
    let args = Args::parse();
    exit_code(match &args.command {
        Some(Command::Vocab(args)) => vocab(args),
        None => train(&args.train),
    })
}

fn vocab(args: &VocabArgs) -> Result<()> {
    let vocab = Vocab::build(&args.corpus.load()?, args.options());
    println!("VOCAB SIZE: {}", vocab.len());
    vocab.save(&args.output)?;
    Ok(())
}

fn train(args: &TrainArgs) -> Result<()> {
    // ANCHOR: data
    let group = ProcessGroup::from_env()?;
    if let Some(path) = &args.output {
        checkpoint::check_destination(path)?;
    }
    let device = Device::Cpu;

    println!("Loading Train Dataset");
    let corpus = args.corpus.load()?;
    let vocab = args.vocab(&corpus)?;
    println!("Vocab Size: {}", vocab.len());
    let dataset = BertDataset::new(&corpus, &vocab, args.seq_len(), args.seed);
    let loader_options = args.loader(corpus.pairs.len())?;
    // ANCHOR_END: data

    // ANCHOR: model
    println!("Building BERT model");
    let options = args.model(&vocab)?;
    tch::manual_seed(args.seed as i64);
    let vs = VarStore::new(device);
    let model = LanguageModel::new(&vs.root(), &options);
    let mut optimizer = Adam::new(&vs, args.adam())?;
    let schedule = args.schedule();
    let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
    println!("Total Parameters: {parameters}");
    // ANCHOR_END: model

    let mut metrics = match &args.metrics {
        Some(directory) => MetricsLog::create(directory, group.rank(), group.world_size())?,
        None => MetricsLog::disabled(),
    };
    let mut timing = Timing::new();
    println!("Training Start");

    // ANCHOR: loop
    let (mut step, last_step) = (0, args.steps.unwrap_or(u64::MAX));
    for epoch in 0..args.epochs {
        // Codertimo's loader does not shuffle either.
        let loader = DataLoader::with_options(
            dataset.epoch(epoch),
            SequentialSampler,
            loader_options.clone(),
        )?;
        let mut average = Average::default();
        for (iter, batch) in (0..).zip(loader.epoch(epoch)?) {
            let (input, target) = batch?.to_device(device)?;
            let begun = Instant::now();

            let output = model.forward_t(&input.0, &input.1, true);
            let loss = bert_loss(&output, &target);
            optimizer.zero_grad()?;
            loss.f_backward()?;
            step += 1;
            optimizer.set_lr(schedule.lr(step));
            optimizer.step()?;

            let loss = f32::try_from(&loss)?;
            timing.step_took(begun.elapsed());
            metrics.log("step", &Step { epoch, step: iter, loss, lr: optimizer.lr() })?;
            ensure!(
                loss.is_finite(),
                "the loss is {loss} at epoch {epoch}, step {iter}; if no pair of the batch counts \
                 (is_next = 1), or no word of it is to be guessed, a larger --batch-size helps"
            );
            average.update(loss, &output.0, &target.0)?;
            if iter % args.log_freq == 0 {
                println!(
                    "{{'epoch': {epoch}, 'iter': {iter}, 'avg_loss': {:.4}, 'avg_acc': {:.4}, 'loss': {loss:.4}}}",
                    average.loss(),
                    average.accuracy()
                );
            }
            if step == last_step {
                break;
            }
        }
        println!(
            "EP{epoch}_train, avg_loss= {:.4} total_acc= {:.4}",
            average.loss(),
            average.accuracy()
        );
        if let Some(path) = &args.output {
            checkpoint::save(path, &vs, &group)?;
            println!("EP:{epoch} Model Saved on: {}", path.display());
        }
        if step == last_step {
            break;
        }
    }
    // ANCHOR_END: loop
    metrics.log("end", &timing.summary())?;
    Ok(())
}

/// What an epoch has come to so far.
#[derive(Default)]
struct Average {
    losses: f64,
    steps: u32,
    correct: i64,
    pairs: i64,
}

impl Average {
    /// `next` and `is_next` as in [`bert_loss`].
    fn update(&mut self, loss: f32, next: &Tensor, is_next: &Tensor) -> Result<()> {
        let correct = next.argmax(-1, false).eq_tensor(is_next).sum(Kind::Int64);
        self.losses += f64::from(loss);
        self.steps += 1;
        self.correct += i64::try_from(correct)?;
        self.pairs += is_next.size()[0];
        Ok(())
    }

    /// The mean over the steps.
    fn loss(&self) -> f64 {
        self.losses / f64::from(self.steps)
    }

    /// How many percent of the pairs were judged right to follow or not to follow.
    fn accuracy(&self) -> f64 {
        100.0 * self.correct as f64 / self.pairs as f64
    }
}

#[derive(Serialize)]
struct Step {
    epoch: u64,
    step: u64,
    loss: f32,
    lr: f64,
}
