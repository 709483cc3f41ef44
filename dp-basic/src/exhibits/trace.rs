//! One step of DataParallel in slow motion: what happens on which device, what is copied, and how long it takes.

use super::{parameters, spans::Show};
use crate::models::{EmbeddingLinear, TwoTargets};
use anyhow::Result;
use clap::{ValueEnum, value_parser};
use exhibit_kit::{plot, template};
use minijinja::context;
use tch::{Kind, Tensor, kind::FLOAT_CPU, kind::INT64_CPU, nn::Path, nn::VarStore};
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions, Event, Step, Trace};
use tch_parallel::{Devices, LogicalDevice, optim::Optimizer, optim::Sgd, optim::SgdOptions};

/// Show one training step of DataParallel, part by part.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dp-basic trace                                    6 tokens on 4 devices, of which 3 have work
  dp-basic trace --devices 2xcpu --output-device 1  outputs and loss on the second device
  dp-basic trace --model mlp --svg timeline.svg     59 million parameters, and a picture")]
pub struct Args {
    /// Model to train.
    #[arg(long, value_enum, default_value_t = Model::Toy)]
    model: Model,
    /// Devices: 4xcpu for four logical devices, or a list such as cuda:0,cuda:1.
    #[arg(long, default_value = "4xcpu")]
    devices: Devices,
    /// Batch size, for all devices together; by default 6 for toy and 8 for mlp.
    #[arg(long, value_parser = value_parser!(i64).range(1..))]
    batch: Option<i64>,
    /// Position in --devices, from 0, of the device that gathers the outputs.
    #[arg(long, default_value_t = 0)]
    output_device: usize,
    #[command(flatten)]
    show: Show,
}

/// The models of the two forum threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// Embedding(1000, 10) and Linear(10, 10).
    Toy,
    /// Linear(768, 76800), ReLU and Linear(76800, 1), with two targets.
    Mlp,
}

pub fn run(args: &Args) -> Result<()> {
    let output = args.devices.get(args.output_device)?;
    let (default, step): (_, fn(Settings<'_>) -> Result<Traced>) = match args.model {
        Model::Toy => (6, toy),
        Model::Mlp => (8, two_targets),
    };
    let batch = args.batch.unwrap_or(default);
    args.show.svg.check()?;
    let settings = (&args.devices, output, batch);
    let traced = step(settings)?;
    print(settings, &traced, !args.show.no_times)?;
    let title = format!("A training step of DataParallel, {batch} rows");
    let (.., events) = &traced;
    let spans = events.iter().map(|event| {
        let (start, duration) = (event.start, event.duration);
        (event.device, plot::Span { category: event.step.to_string(), start, duration })
    });
    let categories = Step::ALL.iter().map(Step::to_string).collect();
    args.show.draw(title, &args.devices, categories, &spans.collect::<Vec<_>>())
}

/// The devices that share the batch, the one that gathers the outputs, and the rows of the batch.
type Settings<'a> = (&'a Devices, LogicalDevice, i64);

/// Of a training step: the model's parameters, the loss, and the events, ordered by part of the step, then by device.
type Traced = (usize, f64, Vec<Event>);

/// The thread's embedding and linear layer. Its code has no loss: here a token's last digit is its class.
fn toy(settings @ (devices, output, batch): Settings<'_>) -> Result<Traced> {
    traced(settings, EmbeddingLinear::new, |model, trace| {
        let numbers = Tensor::arange_start(1, 1 + batch, INT64_CPU);
        let tokens = devices.first().copy_of(&numbers.remainder(EmbeddingLinear::TOKENS))?;
        let logits = model.f_forward_t(&tokens, true)?;
        let _on = output.guard()?;
        let labels = output.copy_of(&tokens.remainder(EmbeddingLinear::WIDTH))?;
        Ok(trace.span(Step::Loss, output, || logits.cross_entropy_for_logits(&labels)))
    })
}

/// The question's model. Each replica returns its loss, so only their mean remains to compute on the output device.
fn two_targets(settings @ (devices, output, batch): Settings<'_>) -> Result<Traced> {
    let build = |path: &Path<'_>| TwoTargets::new(path, TwoTargets::FEATURES, TwoTargets::HIDDEN);
    traced(settings, build, |model, trace| {
        let randn = |shape: &[i64]| devices.first().copy_of(&Tensor::randn(shape, FLOAT_CPU));
        let inputs = (randn(&[batch, TwoTargets::FEATURES])?, randn(&[batch])?, randn(&[batch])?);
        let (_result, losses) = model.forward(inputs, TwoTargets::forward)?;
        let _on = output.guard()?;
        Ok(trace.span(Step::Loss, output, || losses.mean(Kind::Float)))
    })
}

/// Trains for two steps and traces the second: the first allocates memory and starts threads.
fn traced<M: Send>(
    (devices, output, _): Settings<'_>,
    build: impl Fn(&Path<'_>) -> M,
    loss: impl Fn(&DataParallel<M>, &Trace) -> Result<Tensor>,
) -> Result<Traced> {
    tch::manual_seed(0);
    // One thread per replica: more would take cores from the other replicas.
    tch::set_num_threads(1);
    let first = devices.first();
    let vs = VarStore::new(first.into());
    // ANCHOR: output_device
    let options = DataParallelOptions { output_device: Some(output), ..Default::default() };
    let model = DataParallel::with_options(build, &vs, devices, options)?;
    // ANCHOR_END: output_device
    // Small enough that a layer of 76,800 units does not diverge in the first step.
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 1e-6, ..Default::default() })?;

    let mut step = || -> Result<(Trace, f64)> {
        // ANCHOR: step
        let trace = Trace::new();
        model.set_trace(&trace);
        let loss = loss(&model, &trace)?;
        optimizer.zero_grad()?;
        model.backward(&loss)?;
        trace.span(Step::OptimizerStep, first, || optimizer.step())?;
        // ANCHOR_END: step
        Ok((trace, f64::try_from(&loss)?))
    };
    step()?;
    let (trace, loss) = step()?;
    let mut events = trace.events();
    let position = |device| devices.iter().position(|other| other == device);
    events.sort_by_key(|event| (event.step, position(event.device)));
    Ok((parameters(&vs), loss, events))
}

fn print((devices, output, batch): Settings<'_>, traced: &Traced, times: bool) -> Result<()> {
    let (parameters, loss, events) = traced;
    let rows = events.iter().map(|event| {
        let [start, duration] = [event.start, event.duration].map(|time| time.as_secs_f64());
        let (step, device) = (event.step.to_string(), event.device.to_string());
        (step, device, event.shapes.clone(), event.bytes_copied, start, duration)
    });
    let copied = events.chunk_by(|one, next| one.step == next.step).map(|part| {
        let bytes: Vec<_> = part.iter().map(|event| event.bytes_copied).collect();
        (part[0].step.to_string(), bytes)
    });
    let works = |device| {
        events.iter().any(|event| event.step == Step::ParallelApply && event.device == device)
    };
    let idle = devices.iter().filter(|device| !works(*device));
    let holes = context! {
        parameters,
        devices => devices.to_string(),
        output_device => output.to_string(),
        batch,
        times,
        events => rows.collect::<Vec<_>>(),
        losses => events.iter().filter(|event| event.step == Step::Loss).count(),
        copied => copied.collect::<Vec<_>>(),
        bytes_copied => events.iter().map(|event| event.bytes_copied).sum::<usize>(),
        idle => idle.map(|device| device.to_string()).collect::<Vec<_>>(),
        loss,
    };
    Ok(template::print(&template::environment()?, include_str!("trace.jinja"), holes)?)
}
