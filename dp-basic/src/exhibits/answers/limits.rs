//! Which models can be wrapped, and what changes for them (S0.13).

use super::toy::*;
use anyhow::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use tch::{Kind, Tensor, nn, nn::Module, nn::Path, nn::RNN, no_grad};
use tch_parallel::Shared;

/// How far gradients on four devices are from the unwrapped model's, for linear, embedding, convolution, LSTM (S0.12).
pub fn networks() -> Result<Vec<f64>> {
    let embedding = |path: &Path<'_>| nn::embedding(path / "0", 10, 4, Default::default());
    Ok(vec![
        apart(mlp, &batch(8).0)?,
        apart(embedding, &(count(8) + 1))?,
        apart(convolution, &waves(&[8, 1, 6, 6]))?,
        apart(lstm, &waves(&[8, 5, FEATURES]))?,
    ])
}

fn apart<M: Module>(build: impl Fn(&Path<'_>) -> M, inputs: &Tensor) -> Result<f64> {
    let (alone_vs, alone) = unwrapped(&build);
    alone.forward(inputs).square().mean(Kind::Float).backward();
    let (vs, model) = wrapped(4, build)?;
    let loss = || Ok(model.f_forward_t(inputs, true)?.square().mean(Kind::Float));
    Ok(difference(&train(&vs, &model, loss)?.gradients, &gradients(&alone_vs)))
}

/// Images `[batch, 1, 6, 6]` to two numbers each.
fn convolution(path: &Path<'_>) -> nn::Sequential {
    nn::seq()
        .add(nn::conv2d(path / "0", 1, 2, 3, Default::default()))
        .add_fn(|x| x.relu().flat_view())
        .add(nn::linear(path / "2", 2 * 4 * 4, 2, Default::default()))
}

/// Sequences `[batch, length, 6]` to the last state, `[batch, 4]`.
fn lstm(path: &Path<'_>) -> nn::Sequential {
    let lstm = nn::lstm(path / "lstm", FEATURES, 4, Default::default());
    nn::seq().add_fn(move |xs| lstm.seq(xs).0.select(1, -1))
}

/// A model that returns a tuple: its gathered elements' shapes, and how far its gradients are from [`mlp`]'s (S0.26).
pub fn tuple(rows: i64, devices: usize) -> Result<(Vec<i64>, Vec<i64>, f64)> {
    let (inputs, labels) = batch(rows);
    let (vs, model) = wrapped(devices, mlp)?;
    let forward = || {
        model.forward(inputs.shallow_clone(), |module, x| {
            let logits = module.forward(&x);
            let probas = logits.softmax(-1, Kind::Float);
            (logits, probas)
        })
    };
    // `train` clears the gradients, to which the second step's would otherwise be added.
    let step = || train(&vs, &model, || Ok(forward()?.0.cross_entropy_for_logits(&labels)));
    step()?;
    let gradients = step()?.gradients;
    let (logits, probas) = forward()?;
    Ok((logits.size(), probas.size(), difference(&gradients, &reference(rows))))
}

/// Batch normalisation of the numbers from 0, one per row: its outputs and its running mean.
fn normalise(rows: i64, devices: usize) -> Result<(Tensor, f64)> {
    let (vs, model) = wrapped(devices, |it| nn::batch_norm1d(it / "bn", 1, Default::default()))?;
    let numbers = Tensor::arange(rows, tch::kind::FLOAT_CPU).view([rows, 1]);
    let outputs = no_grad(|| model.f_forward_t(&numbers, true))?;
    Ok((outputs, number(&vs.variables()["bn.running_mean"])))
}

/// The running mean of the numbers from 0, after one forward pass.
pub fn running_mean(rows: i64, devices: usize) -> Result<f64> {
    Ok(normalise(rows, devices)?.1)
}

/// The difference between the outputs of batch normalisation and those on one device.
pub fn normalised(rows: i64, devices: usize) -> Result<f64> {
    Ok(difference(&normalise(rows, devices)?.0, &normalise(rows, 1)?.0))
}

/// What DataParallel gathers if each replica returns a single number: its count of rows.
pub fn scalar(rows: i64, devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = wrapped(devices, mlp)?;
    Ok(model.forward(batch(rows).0, |_, x| Tensor::from(x.size()[0]))?.try_into()?)
}

/// The result, or the error, for a batch of 4 with a hidden state `[layers, 4, 3]`, or `[4, layers, 3]` if transposed.
pub fn hidden_state(transposed: bool) -> Result<String> {
    let (x, h) = (waves(&[4, 3]), waves(&[2, 4, 3]));
    let h = if transposed { h.transpose(0, 1) } else { h };
    let (_vs, model) = wrapped(2, mlp)?;
    let states = model.forward((x, h), |_, (x, h)| {
        // The module expects the layers first.
        let h = if transposed { h.transpose(0, 1) } else { h };
        (h + x).transpose(0, 1)
    });
    Ok(states.map_or_else(|error| error.to_string(), |it| format!("a state of {:?}", it.size())))
}

/// The numbers from 1, one on each device, times a number that every device gets.
pub fn shared(devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = wrapped(devices, mlp)?;
    let numbers = Tensor::arange_start(1, 1 + devices as i64, (Kind::Int64, tch::Device::Cpu));
    Ok(model.forward((numbers, Shared(5)), |_, (x, Shared(factor))| x * factor)?.try_into()?)
}

/// How many times a forward pass runs the module.
pub fn calls(rows: i64, devices: usize) -> Result<usize> {
    let calls = AtomicUsize::new(0);
    let (_vs, model) = wrapped(devices, mlp)?;
    let _ = model.forward(batch(rows).0, |module, x| {
        calls.fetch_add(1, Ordering::Relaxed);
        module.forward(&x)
    })?;
    Ok(calls.into_inner())
}
