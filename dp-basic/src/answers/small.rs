//! A model, a batch and a way to compare gradients: what most answers are computed with.

use anyhow::Result;
use tch::nn::{Module, Path, Sequential, VarStore};
use tch::{Device, Kind, Tensor, nn, no_grad};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions, Event, Step, Trace};
use tch_parallel::nn::{LinearOptions, linear};

/// Two gradients are equal if they differ by no more than this share of the largest value: a sum
/// over the rows is rounded otherwise when it is computed in parts.
pub const ROUNDING: f64 = 1e-6;

/// Numbers in a row of [`batch`]'s inputs.
pub const FEATURES: i64 = 6;
const CLASSES: i64 = 3;

/// `Linear(6, 8)`, tanh, `Linear(8, 3)`.
pub fn mlp(path: &Path<'_>) -> Sequential {
    nn::seq()
        .add(linear(path / "0", FEATURES, 8, LinearOptions::default()))
        .add_fn(|x| x.tanh())
        .add(linear(path / "2", 8, CLASSES, LinearOptions::default()))
}

/// Inputs `[rows, 6]` and classes `[rows]`.
pub fn batch(rows: i64) -> (Tensor, Tensor) {
    let labels = Tensor::arange(rows, (Kind::Int64, Device::Cpu)).remainder(CLASSES);
    (waves(&[rows, FEATURES]), labels)
}

/// Numbers between -1 and 1 that depend on nothing but their places.
pub fn waves(shape: &[i64]) -> Tensor {
    let count = shape.iter().product::<i64>();
    (Tensor::arange_start(1, 1 + count, (Kind::Float, Device::Cpu)) * 0.7).sin().view(shape)
}

/// Gives a model weights that depend on nothing but their places, so that two models of the same
/// form are equal.
pub fn set_weights(vs: &VarStore) {
    for mut variable in vs.trainable_variables() {
        no_grad(|| variable.copy_(&(waves(&variable.size()) * 0.4)));
    }
}

/// [`mlp`] on logical devices.
pub fn on_devices(count: usize) -> Result<(VarStore, DataParallel<Sequential>)> {
    wrapped(&Devices::cpu(count)?, DataParallelOptions::default(), mlp)
}

/// Any model on any devices, with weights that depend on their places.
pub fn wrapped<M: Send>(
    devices: &Devices,
    options: DataParallelOptions,
    build: impl Fn(&Path<'_>) -> M,
) -> Result<(VarStore, DataParallel<M>)> {
    let vs = VarStore::new(devices.first().into());
    let model = DataParallel::with_options(&vs, devices, options, build)?;
    set_weights(&vs);
    Ok((vs, model))
}

/// The same model without DataParallel.
pub fn unwrapped<M>(build: impl Fn(&Path<'_>) -> M) -> (VarStore, M) {
    let vs = VarStore::new(Device::Cpu);
    let model = build(&vs.root());
    set_weights(&vs);
    (vs, model)
}

/// Loss and gradients of [`mlp`] on [`batch`] without DataParallel.
pub fn reference(rows: i64) -> Result<(f64, Tensor)> {
    let (vs, model) = unwrapped(mlp);
    let (inputs, labels) = batch(rows);
    let loss = model.forward(&inputs).cross_entropy_for_logits(&labels);
    loss.backward();
    Ok((number(&loss)?, gradients(&vs)))
}

/// The gradients of all parameters in one row.
pub fn gradients(vs: &VarStore) -> Tensor {
    let flat: Vec<_> =
        vs.trainable_variables().iter().map(|variable| variable.grad().view([-1])).collect();
    Tensor::cat(&flat, 0)
}

/// The largest difference, as a share of the largest expected value.
pub fn difference(found: &Tensor, expected: &Tensor) -> Result<f64> {
    Ok(number(&(found - expected).abs().max())? / number(&expected.abs().max())?)
}

/// How many times `expected` one has to take to come as near to `found` as possible.
pub fn ratio(found: &Tensor, expected: &Tensor) -> Result<f64> {
    let product = |a: &Tensor, b: &Tensor| number(&(a * b).sum(Kind::Double));
    Ok(product(found, expected)? / product(expected, expected)?)
}

/// `equal` within [`ROUNDING`], or by how much not.
pub fn equality(difference: f64) -> String {
    if difference <= ROUNDING {
        "equal".into()
    } else {
        format!("{:.1} % apart", 100.0 * difference)
    }
}

/// A tensor's only number.
pub fn number(tensor: &Tensor) -> Result<f64> {
    Ok(f64::try_from(tensor.to_kind(Kind::Double))?)
}

/// What happened in a step of `model`.
pub fn traced<M: Send>(
    model: &DataParallel<M>,
    step: impl FnOnce(&DataParallel<M>, &Trace) -> Result<()>,
) -> Result<Vec<Event>> {
    let trace = Trace::new();
    model.set_trace(&trace);
    step(model, &trace)?;
    let mut events = trace.events();
    events.sort_by_key(|event| (event.step, event.device));
    Ok(events)
}

/// Bytes that one kind of step has copied, event by event.
pub fn copied(events: &[Event], step: Step) -> Vec<usize> {
    let events = events.iter().filter(|event| event.step == step);
    events.map(|event| event.bytes_copied).collect()
}

/// Bytes that one kind of step has copied in all.
pub fn copied_by(events: &[Event], step: Step) -> usize {
    copied(events, step).into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_share_of_the_largest_value() {
        let expected = Tensor::from_slice(&[1.0, -4.0]);
        assert_eq!(difference(&Tensor::from_slice(&[1.0, -3.0]), &expected).unwrap(), 0.25);
        assert_eq!(equality(0.25), "25.0 % apart");
        assert_eq!(equality(difference(&expected, &expected).unwrap()), "equal");
        assert_eq!(ratio(&(&expected * 0.5), &expected).unwrap(), 0.5);
    }
}
