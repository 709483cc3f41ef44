//! BERT on one device or several, after matthew l's "Learn PyTorch Multi-GPU properly", which trains
//! codertimo's BERT-pytorch.
//!
//! ```text
//! cargo run --release -p dp-custom-criterion -- --steps 20
//! cargo run --release -p dp-custom-criterion -- --steps 20 --devices 2xcpu --method custom-criterion
//! cargo launch -n 2 dp-custom-criterion -- --steps 20 --method ddp
//! cargo run --release -p dp-custom-criterion -- compare --devices 4xcpu --svg memory.svg
//! cargo run --release -p dp-custom-criterion -- vocab --corpus corpus.txt --output vocab.json
//! cargo run --release -p dp-custom-criterion -- --corpus corpus.txt --vocab vocab.json
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod data;
mod exhibits {
    pub mod compare;
}
mod loss;
mod model;
mod parallel;

use anyhow::Result;
use args::{Args, Command, ORIGINALS, TrainArgs, VocabArgs};
use data::{BertDataset, Corpus, Vocab};
use exhibit_kit::comparison::is_measured;
use exhibits::compare::compare;
use loss::accuracy;
use model::LanguageModel;
use parallel::{Pair, Wrapped};
use report::{Meter, Progress, exit, one_thread_each, println, process_group_on, say};
use tch::{Device, nn::VarStore};
use tch_parallel::data::{DataLoader, DistributedSampler};
use tch_parallel::distributed::{Env, full_size, init_process_group};
use tch_parallel::optim::{Adam, Optimizer};
use tch_parallel::{amp::autocast, checkpoint};

const NOT_FINITE: &str = "if no pair of the batch counts (is_next = 1), or no word of it is to be \
                          guessed, a larger --batch-size helps";

fn main() {
    let args: Args = report::parse(ORIGINALS, &[("vocab", &[])]);
    exit(|| match &args.command {
        Some(Command::Vocab(args)) => vocab(args),
        Some(Command::Compare(args)) => compare(args),
        None => train(&args.train),
    })
}

fn vocab(args: &VocabArgs) -> Result<()> {
    let VocabArgs { corpus, output, options, encoding: _ } = args;
    let vocab = Vocab::build(&Corpus::load(corpus.as_deref())?, *options);
    println!("VOCAB SIZE: {}", vocab.len());
    vocab.save(output)
}

fn train(args: &TrainArgs) -> Result<()> {
    // If a comparison has started this process, it ends with it.
    let advice = (!is_measured()?).then_some(NOT_FINITE);
    let env = Env::read()?;
    let devices = args.method.devices(env.as_ref())?;
    // What this thread allocates counts for the first of them.
    let home = devices.first();
    let _on = home.guard()?;
    let (rank, ranks) = env.map_or((0, 1), |env| (env.rank, env.world_size));
    one_thread_each(&devices, ranks);
    if let (Some(path), 0) = (&args.output, rank) {
        checkpoint::check_destination(path)?;
    }
    let (corpus, vocab) = args.text.load()?;
    let vocab_size = args.model.vocab_size(vocab.len())?;
    let options = args.loader(corpus.pairs.len(), ranks, Device::from(home).is_cuda())?;
    let group = init_process_group(process_group_on(home, args.method.method.is_distributed()))?;

    say(&group, "Loading Train Dataset");
    say(&group, format!("Vocab Size: {}", vocab.len()));
    let dataset = BertDataset::new(&corpus, &vocab, args.model.seq_len as usize, args.seed);
    // Each rank takes its share, unshuffled as with codertimo's loader, and without pairs that come twice.
    let own = DistributedSampler::new(&group, 0);
    let sampler = DistributedSampler { shuffle: false, drop_last: true, ..own };
    let loader = DataLoader::with_options(dataset, sampler, options)?;

    say(&group, "Building BERT model");
    tch::manual_seed(args.seed as i64 + group.rank() as i64);
    let vs = VarStore::new(home.into());
    if devices.len() > 1 {
        say(&group, format!("Using {} GPUS for BERT: {devices}", devices.len()));
    }
    let meter = Meter::new(&devices);
    let size = (&args.model, vocab_size);
    let model = Wrapped::new(&args.method, size, &vs, &devices, &group, meter.trace())?;
    let mut optimizer = Adam::new(&vs, args.adam())?;
    let sizes = vs.trainable_variables().into_iter().map(|it| full_size(&it));
    let parameters: i64 = sizes.map(|size| size.iter().product::<i64>()).sum();
    say(&group, format!("Total Parameters: {parameters}"));

    say(&group, "Training Start");
    let run = args.report.start(&group, args.lr(1), Progress::default())?.with_device_meter(meter);
    let mut run = run.with_lines(args.log_freq as usize, None).with_advice(advice);
    let bert = |bert: &LanguageModel, (tokens, segments): Pair| {
        let (next, mlm) = bert.forward_t(&tokens, &segments, true);
        (if args.no_next_sentence { next.detach() } else { next }, mlm)
    };
    let (mut step, last) = (0, args.steps.unwrap_or(u64::MAX));
    for epoch in 0..args.epochs {
        for batch in run.epoch(&loader)?.take((last - step) as usize) {
            // ANCHOR: step
            let (input, target) = batch?;
            let (loss, output, backward) =
                autocast(home.into(), args.amp, || model.forward(bert, input, &target))??;
            optimizer.zero_grad()?;
            backward(&loss)?;
            run.mark("forward_backward_seconds")?;
            step += 1;
            optimizer.set_lr(args.lr(step));
            optimizer.step()?;
            // ANCHOR_END: step
            run.field("lr", optimizer.lr());
            let accuracy = accuracy(&output.0, &target.0)?;
            if run.step([&loss, &accuracy], target.0.size()[0])? {
                let (iter, [loss, acc]) = (run.progress().step - 1, run.pass().meters().numbers);
                let (avg_loss, avg_acc, loss) = (loss.avg(), acc.avg(), loss.val());
                let line = format!(
                    "{{'epoch': {epoch}, 'iter': {iter}, 'avg_loss': {avg_loss:.4}, \
                     'avg_acc': {avg_acc:.4}, 'loss': {loss:.4}}}"
                );
                say(&group, line);
            }
        }
        let [loss, acc] = run.end_pass()?.meters().numbers.map(|meter| meter.avg());
        say(&group, format!("EP{epoch}_train, avg_loss= {loss:.4} total_acc= {acc:.4}"));
        if let Some(path) = &args.output {
            checkpoint::save(path, &vs, &group)?;
            say(&group, format!("EP:{epoch} Model Saved on: {}", path.display()));
        }
        if step == last {
            break;
        }
    }
    run.report_devices(&vs, optimizer.state_bytes(), model.waiting_time()?)?;
    run.end()
}
