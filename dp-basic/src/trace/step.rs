//! One training step under a trace, with each of the two models.

use super::Settings;
use crate::models::{EmbeddingLinear, TwoTargets};
use anyhow::Result;
use tch::nn::{Path, VarStore};
use tch::{Device, Kind, Tensor};
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions, Event, Step, Trace};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};

/// What a traced step has shown.
#[derive(Debug)]
pub struct Traced {
    /// Parameters of the model.
    pub parameters: usize,
    /// The loss of the step.
    pub loss: f64,
    /// What was done, in the order of the steps and, within a step, of the devices.
    pub events: Vec<Event>,
}

/// The thread's embedding and linear layer. Its code has no loss: here each token is to be
/// recognised by its last digit.
pub fn toy(settings: &Settings) -> Result<Traced> {
    traced(settings, EmbeddingLinear::new, |model, trace| {
        let numbers = Tensor::arange_start(1, 1 + settings.batch, (Kind::Int64, Device::Cpu));
        let tokens = settings.on_first(&numbers.remainder(EmbeddingLinear::TOKENS))?;
        let logits = model.f_forward_t(&tokens, true)?;
        let _on = settings.output_device.guard()?;
        let labels = settings.output_device.copy_of(&tokens.remainder(EmbeddingLinear::WIDTH))?;
        Ok(trace
            .span(Step::Loss, settings.output_device, || logits.cross_entropy_for_logits(&labels)))
    })
}

/// The question's model with two targets. It returns its loss, and so every replica does: the mean
/// of these is what is left to compute on the output device.
pub fn two_targets(settings: &Settings) -> Result<Traced> {
    let build = |path: &Path<'_>| TwoTargets::new(path, TwoTargets::FEATURES, TwoTargets::HIDDEN);
    traced(settings, build, |model, trace| {
        let random =
            |shape: &[i64]| settings.on_first(&Tensor::randn(shape, (Kind::Float, Device::Cpu)));
        let inputs = (
            random(&[settings.batch, TwoTargets::FEATURES])?,
            random(&[settings.batch])?,
            random(&[settings.batch])?,
        );
        let (_result, losses) =
            model.forward(inputs, |replica, (x, y, y2)| replica.forward(&x, &y, &y2))?;
        let _on = settings.output_device.guard()?;
        Ok(trace.span(Step::Loss, settings.output_device, || losses.mean(Kind::Float)))
    })
}

/// Runs two steps and records the second: the first one waits for memory and threads.
fn traced<M: Send>(
    settings: &Settings,
    build: impl Fn(&Path<'_>) -> M,
    loss: impl Fn(&DataParallel<M>, &Trace) -> Result<Tensor>,
) -> Result<Traced> {
    tch::manual_seed(0);
    // One for each replica: more would take the cores away from the others.
    tch::set_num_threads(1);
    let first = settings.devices.first();
    let vs = VarStore::new(first.into());
    // ANCHOR: output_device
    let options =
        DataParallelOptions { output_device: Some(settings.output_device), ..Default::default() };
    let model = DataParallel::with_options(&vs, &settings.devices, options, build)?;
    // ANCHOR_END: output_device
    // So small that a layer of 76,800 units does not overshoot in the step before the traced one.
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
    events.sort_by_key(|event| (event.step, settings.position(event.device)));
    let parameters = vs.trainable_variables().iter().map(Tensor::numel).sum();
    Ok(Traced { parameters, loss, events })
}
