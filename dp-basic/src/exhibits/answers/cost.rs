//! The parts of a training step, and what it costs: bytes copied, memory, time.

use super::toy::*;
use crate::models::{EmbeddingLinear, TwoTargets};
use anyhow::Result;
use std::time::Instant;
use tch::{Device, Kind, Tensor, nn::Linear, nn::Module, nn::Path, nn::VarStore, no_grad};
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, Step, Trace};
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice, nn::linear};

/// The parts of a training step in their order, each with its devices (S0.4, S0.10, S0.32, S2.3, S2.4, S2.5).
pub fn parts(rows: i64, devices: usize) -> Result<Vec<String>> {
    let mut events = step(rows, devices, 0)?.events;
    // One event is enough for a device that has several, such as the loss and its gradient.
    events.dedup_by_key(|event| (event.step, event.device));
    let parts = events.chunk_by(|one, next| one.step == next.step).map(|part| {
        let devices: Vec<_> = part.iter().map(|event| event.device.to_string()).collect();
        format!("{}: {}", part[0].step, devices.join(" "))
    });
    Ok(parts.collect())
}

/// Parameters of the question's model, and bytes of weights that a forward pass copies to the second device (S2.20).
pub fn question_model() -> Result<(usize, usize)> {
    let devices = Devices::cpu(2)?;
    let vs = VarStore::new(devices.first().into());
    let build = |path: &Path<'_>| TwoTargets::new(path, TwoTargets::FEATURES, TwoTargets::HIDDEN);
    let model = DataParallel::new(build, &vs, &devices)?;
    let trace = Trace::new();
    model.set_trace(&trace);
    let inputs = (waves(&[2, TwoTargets::FEATURES]), waves(&[2]), waves(&[2]));
    let _ = no_grad(|| model.forward(inputs, TwoTargets::forward))?;
    Ok((parameters(&vs), copied_by(&trace.events(), Step::Replicate)))
}

/// Bytes of weights leaving the first device in a step of the first thread's model, and of gradients (S0.7, S2.23).
pub fn through_the_first(devices: usize) -> Result<(usize, usize)> {
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4]);
    let (vs, model) = wrapped(devices, EmbeddingLinear::new)?;
    let loss = || Ok(model.f_forward_t(&tokens, true)?.mean(Kind::Float));
    let events = train(&vs, &model, loss)?.events;
    Ok((copied_by(&events, Step::Replicate), copied_by(&events, Step::ReduceGradients)))
}

const HIDDEN: i64 = 256;

/// Milliseconds of the loss and its gradient, and of the whole training step of a model of three
/// layers on one device (S0.22). The fastest of six steps, since other load only slows steps down.
pub fn loss_time(rows: i64, classes: i64) -> (f64, f64) {
    let vs = VarStore::new(Device::Cpu);
    let hidden = ["0", "1"].map(|it| linear(vs.root() / it, HIDDEN, HIDDEN, Default::default()));
    let output = layer(classes)(&vs.root());
    let (inputs, targets) = synthetic_batch(rows, HIDDEN, 10);
    let step = || {
        let begun = Instant::now();
        let logits = output.forward(&hidden[1].forward(&hidden[0].forward(&inputs).relu()).relu());
        let loss_begun = Instant::now();
        let leaf = logits.detach().set_requires_grad(true);
        leaf.cross_entropy_for_logits(&targets).backward();
        let loss = loss_begun.elapsed();
        // The gradient of this sum with respect to the logits is the one computed above.
        (logits * leaf.grad()).sum(Kind::Float).backward();
        (1e3 * loss.as_secs_f64(), 1e3 * begun.elapsed().as_secs_f64())
    };
    (0..6).map(|_| step()).min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
}

/// On four devices, bytes copied to gather the outputs, to scatter their gradients, and to scatter
/// the targets for a parallel criterion (S0.23).
pub fn transported(rows: i64, classes: i64) -> Result<(usize, usize, usize)> {
    let batch = synthetic_batch(rows, HIDDEN, 10);
    let gathered = classify(&wrapped(4, layer(classes))?, &batch)?.events;

    let (_vs, model) = split(4, layer(classes))?;
    let trace = Trace::new();
    model.set_trace(&trace);
    let criterion = DataParallelCriterion::new(Tensor::cross_entropy_for_logits);
    let (inputs, targets) = batch;
    criterion.forward(model.f_forward_t(&inputs, true)?, targets)?.backward()?;
    let scattered = copied_by(&trace.events(), Step::Scatter);
    let steps = [Step::Gather, Step::ScatterGradients, Step::Scatter];
    let [outputs, gradients, inputs] = steps.map(|step| copied_by(&gathered, step));
    Ok((outputs, gradients, scattered - inputs))
}

/// Bytes copied to gather from four devices the outputs of a model with one number per row (S2.22).
pub fn one_number_a_row(rows: i64) -> Result<usize> {
    let (vs, model) = wrapped(4, |path| TwoTargets::new(path, HIDDEN, 8))?;
    let inputs = (waves(&[rows, HIDDEN]), waves(&[rows]), waves(&[rows]));
    let result = |replica: &TwoTargets, inputs| replica.forward(inputs).0;
    let loss = || Ok(model.forward(inputs, result)?.mean(Kind::Float));
    Ok(copied_by(&train(&vs, &model, loss)?.events, Step::Gather))
}

fn layer(classes: i64) -> impl Fn(&Path<'_>) -> Linear {
    move |path| linear(path / "output", HIDDEN, classes, Default::default())
}

/// Outputs per row of [`peaks`]: enough that they, and not the weights, fill the memory.
const OUTPUTS: i64 = 10_000;

/// Peak memory in bytes on each of three devices in a training step of 64 rows, with the outputs
/// gathered on one of them (S0.27, S0.28, S0.29). The first two have a replica.
pub fn peaks(all: [LogicalDevice; 3], output: usize) -> Result<Vec<usize>> {
    let (devices, output) = (Devices::new([all[0], all[1]])?, all[output]);
    let (rows, features) = (64, 16);
    let build = |path: &Path<'_>| linear(path / "output", features, OUTPUTS, Default::default());
    let before = all.map(memory_allocated);
    let _on_first = devices.first().guard()?;
    let (_vs, model) = with_output_on(output, &devices, build)?;
    let (inputs, labels) = (waves(&[rows, features]), output.copy_of(&count(rows))?);
    all.into_iter().try_for_each(reset_peak_memory_stats)?;
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = {
        let _on_output = output.guard()?;
        logits.cross_entropy_for_logits(&labels)
    };
    drop(logits);
    model.backward(&loss)?;
    let peaks = all.into_iter().zip(before);
    peaks.map(|(device, before)| Ok(max_memory_allocated(device)? - before?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_goes_where_the_outputs_go() {
        // Devices of this test only: tests share the process.
        let on = |output| peaks([40, 41, 42].map(LogicalDevice::Cpu), output).unwrap();
        let (first, second, outside) = (on(0), on(1), on(2));
        let logits = 64 * OUTPUTS as usize * size_of::<f32>();
        assert!(first[0] >= first[1] + 2 * logits, "{first:?}");
        assert!(second[1] >= first[1] + 2 * logits, "{first:?} {second:?}");
        assert!(second[0] + logits <= first[0], "{first:?} {second:?}");
        assert!(outside[2] >= 3 * logits, "{outside:?}");
        assert_eq!((first[2], second[2]), (0, 0));
    }
}
