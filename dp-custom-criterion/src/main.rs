//! BERT on one device or several, after matthew l's "Learn PyTorch Multi-GPU properly", which trains
//! codertimo's BERT-pytorch.
//!
//! ```text
//! cargo run --release -p dp-custom-criterion -- --steps 20
//! cargo run --release -p dp-custom-criterion -- --steps 20 --devices 2xcpu --method custom-criterion
//! cargo launch -n 2 dp-custom-criterion -- --steps 20 --method ddp
//! cargo run --release -p dp-custom-criterion -- compare --devices 4xcpu --svg memory.svg
//! cargo run --release -p dp-custom-criterion -- vocab --corpus corpus.txt --output vocab.txt
//! cargo run --release -p dp-custom-criterion -- --corpus corpus.txt --vocab vocab.txt
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod data;
mod exhibits;
mod loss;
mod model;
mod parallel;

use anyhow::Result;
use args::{Args, Command, ORIGINALS, TrainArgs, Utf8, VocabArgs};
use data::{BertDataset, Corpus, Vocab};
use exhibit_kit::comparison::is_measured;
use exhibits::compare::compare;
use loss::correct;
use model::LanguageModel;
use parallel::{Parallel, Pass};
use report::{
    InFlight, Meter, Timing, exit, one_thread_each, println, process_group_on, why_not_finite,
};
use serde::Serialize;
use tch::Tensor;
use tch::nn::{Path, VarStore};
use tch_parallel::Event;
use tch_parallel::amp::autocast;
use tch_parallel::checkpoint;
use tch_parallel::data::{DataLoader, DistributedSampler};
use tch_parallel::data_parallel::Step;
use tch_parallel::distributed::{AverageMeter, Env, init_process_group};
use tch_parallel::optim::{Adam, Optimizer};

fn main() {
    let args: Args = report::parse(ORIGINALS, &[("vocab", &[])]);
    exit(|| match &args.command {
        Some(Command::Vocab(args)) => vocab(args),
        Some(Command::Compare(args)) => compare(args),
        None => train(&args.train),
    })
}

fn vocab(args: &VocabArgs) -> Result<()> {
    let VocabArgs { corpus, output, options, encoding: Utf8 } = args;
    let vocab = Vocab::build(&Corpus::load(corpus.as_deref())?, *options);
    println!("VOCAB SIZE: {}", vocab.len());
    vocab.save(output)
}

fn train(args: &TrainArgs) -> Result<()> {
    let is_measured = is_measured()?;
    let env = Env::read()?;
    let devices = args.method.devices(env.as_ref())?;
    // What this thread allocates counts for the first of them.
    let home = devices.first();
    let _on = home.guard()?;
    let ranks = env.as_ref().map_or(1, |env| env.world_size);
    one_thread_each(&devices, ranks);
    let say = |line: String| {
        if env.as_ref().is_none_or(|env| env.rank == 0) {
            println!("{line}");
        }
    };

    if let Some(path) = &args.output {
        checkpoint::check_destination(path)?;
    }
    say("Loading Train Dataset".into());
    let (corpus, vocab) = args.text.load()?;
    say(format!("Vocab Size: {}", vocab.len()));
    let dataset = BertDataset::new(&corpus, &vocab, args.model.seq_len as usize, args.seed);
    let loader_options = args.loader(corpus.pairs.len(), ranks, home)?;
    let vocab_size = args.model.vocab_size(vocab.len())?;

    say("Building BERT model".into());
    let group = init_process_group(process_group_on(home, args.method.method.is_distributed()))?;
    tch::manual_seed(args.seed as i64 + group.rank() as i64);
    let vs = VarStore::new(home.into());
    let build = |path: &Path<'_>| LanguageModel::new(path, &args.model, vocab_size);
    if devices.len() > 1 {
        say(format!("Using {} GPUS for BERT: {devices}", devices.len()));
    }
    let mut meter = Meter::new(&devices);
    let trace = meter.trace().clone();
    let model = Parallel::new(&args.method, build, &vs, &devices, &group, &trace)?;
    let mut optimizer = Adam::new(&vs, args.adam())?;
    let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
    say(format!("Total Parameters: {parameters}"));

    let mut metrics = args.report.metrics(&group)?;
    let mut profiler = args.report.profiler(&group)?;
    let mut timing = Timing::new();
    say("Training Start".into());

    let run = |bert: &LanguageModel, (tokens, segments): (Tensor, Tensor)| {
        let (next, mlm) = bert.forward_t(&tokens, &segments, true);
        (if args.no_next_sentence { next.detach() } else { next }, mlm)
    };
    // Each rank takes its share, unshuffled as with codertimo's loader.
    let sampler = DistributedSampler { shuffle: false, ..DistributedSampler::new(&group, 0) };
    let loader = DataLoader::with_options(dataset, sampler, loader_options)?;
    let (mut step, last_step) = (0, args.steps.unwrap_or(u64::MAX));
    for epoch in 0..args.epochs {
        let (mut avg_loss, mut avg_acc) = (AverageMeter::default(), AverageMeter::default());
        let mut in_flight = InFlight::default();
        for (iter, batch) in (0..).zip(loader.epoch(epoch)?.to(home)) {
            let (input, target) = batch?;
            let is_next = target.0.shallow_clone();
            meter.begin_step()?;
            let begun = Event::record(home)?;

            let Pass { loss, output, backward } =
                autocast(home.into(), args.amp, || model.forward(run, input, target))??;
            optimizer.zero_grad()?;
            backward()?;
            let backward_ended = Event::record(home)?;
            step += 1;
            optimizer.set_lr(args.lr(step));
            trace.span(Step::OptimizerStep, home, || optimizer.step())?;
            let events = [begun, backward_ended, Event::record(home)?];
            meter.end_step()?;

            profiler.step()?;
            let (lr, pairs) = (optimizer.lr(), is_next.size()[0] as usize);
            // The numbers of earlier steps may still be on their way from a GPU. A line that is
            // printed waits for all of them.
            // Copied to the device of the events, they arrive after these.
            let numbers = [home.copy_of(&loss)?, home.copy_of(&correct(&output.0, &is_next)?)?];
            in_flight.push((iter, lr, events, pairs), numbers.each_ref())?;
            let is_last = step == last_step || iter + 1 == loader.len() as u64;
            let arrived = in_flight.arrived(is_last || iter % args.log_freq == 0)?;
            for ((iter, lr, [begun, backward_ended, ended], pairs), [loss, correct]) in arrived {
                let loss = loss as f32;
                timing.step_took(begun.elapsed_time(&ended)?);
                let forward_backward_seconds = begun.elapsed_time(&backward_ended)?.as_secs_f64();
                let event = StepEvent { epoch, step: iter, loss, lr, forward_backward_seconds };
                metrics.log("step", &event)?;
                if !loss.is_finite() && !is_measured {
                    let advice = format!(
                        "the loss is {loss} at epoch {epoch}, step {iter}; if no pair of the batch \
                         counts (is_next = 1), or no word of it is to be guessed, a larger \
                         --batch-size helps"
                    );
                    return Err(why_not_finite(&group, advice));
                }
                avg_loss.update(loss.into(), 1);
                let correct = correct as usize;
                avg_acc.update(100.0, correct);
                avg_acc.update(0.0, pairs - correct);
                if iter % args.log_freq == 0 {
                    let (avg_loss, avg_acc) = (avg_loss.avg(), avg_acc.avg());
                    say(format!(
                        "{{'epoch': {epoch}, 'iter': {iter}, 'avg_loss': {avg_loss:.4}, \
                         'avg_acc': {avg_acc:.4}, 'loss': {loss:.4}}}"
                    ));
                }
            }
            if step == last_step {
                break;
            }
        }
        let (avg_loss, total_acc) = (avg_loss.avg(), avg_acc.avg());
        say(format!("EP{epoch}_train, avg_loss= {avg_loss:.4} total_acc= {total_acc:.4}"));
        if let Some(path) = &args.output {
            checkpoint::save(path, &vs, &group)?;
            say(format!("EP:{epoch} Model Saved on: {}", path.display()));
        }
        if step == last_step {
            break;
        }
    }
    for report in meter.reports(&vs, optimizer.state_bytes(), model.waiting_time()?, &timing)? {
        println!("{report}");
        metrics.log("device", &report)?;
    }
    metrics.log("end", &timing.summary())?;
    Ok(())
}

#[derive(Serialize)]
struct StepEvent {
    epoch: u64,
    step: u64,
    loss: f32,
    lr: f64,
    /// The time of the forward pass, the loss, `zero_grad` and the backward pass.
    forward_backward_seconds: f64,
}
