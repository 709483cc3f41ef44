//! What the experiments share: a model, a batch, a training step, and ways to compare gradients.

pub use crate::exhibits::{count, gradients, parameters, synthetic_batch, waves};
use anyhow::Result;
use tch::nn::{Module, ModuleT, Path, Sequential, VarStore};
use tch::{Device, Kind, Tensor, nn, no_grad};
use tch_parallel::data_parallel::{DataParallel, DataParallelModel, DataParallelOptions, Event};
use tch_parallel::{Devices, LogicalDevice};
use tch_parallel::{data_parallel::Step, data_parallel::Trace, nn::LinearOptions, nn::linear};

/// Gradients are equal if they differ by this share of the largest value at most: sums in parts are rounded otherwise.
pub const ROUNDING: f64 = 1e-6;

/// Width of [`batch`]'s inputs.
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
    synthetic_batch(rows, FEATURES, CLASSES)
}

/// Sets weights that depend only on their positions, so that two models of the same kind are equal.
pub fn set_weights(vs: &VarStore) {
    for mut variable in vs.trainable_variables() {
        no_grad(|| variable.copy_(&(waves(&variable.size()) * 0.4)));
    }
}

/// A model in DataParallel on logical devices.
pub fn wrapped<M: Send>(
    devices: usize,
    build: impl Fn(&Path<'_>) -> M,
) -> Result<(VarStore, DataParallel<M>)> {
    with_output_on(LogicalDevice::Cpu(0), &Devices::cpu(devices)?, build)
}

/// A model in DataParallel that gathers its outputs on the device `output`.
pub fn with_output_on<M: Send>(
    output: LogicalDevice,
    devices: &Devices,
    build: impl Fn(&Path<'_>) -> M,
) -> Result<(VarStore, DataParallel<M>)> {
    let vs = VarStore::new(devices.first().into());
    let options = DataParallelOptions { output_device: Some(output), ..Default::default() };
    let model = DataParallel::with_options(build, &vs, devices, options)?;
    set_weights(&vs);
    Ok((vs, model))
}

/// A model in DataParallelModel: its outputs stay on their devices.
pub fn split<M: Send>(
    devices: usize,
    build: impl Fn(&Path<'_>) -> M,
) -> Result<(VarStore, DataParallelModel<M>)> {
    let devices = Devices::cpu(devices)?;
    let vs = VarStore::new(devices.first().into());
    let model = DataParallelModel::new(build, &vs, &devices)?;
    set_weights(&vs);
    Ok((vs, model))
}

pub fn unwrapped<M>(build: impl Fn(&Path<'_>) -> M) -> (VarStore, M) {
    let vs = VarStore::new(Device::Cpu);
    let model = build(&vs.root());
    set_weights(&vs);
    (vs, model)
}

pub struct Outcome {
    pub loss: f64,
    /// The gradients of all parameters, in one row.
    pub gradients: Tensor,
    /// Ordered by part of the step, then by device.
    pub events: Vec<Event>,
}

/// One training step of `model`, without the optimizer's part.
pub fn train<M: Send>(
    vs: &VarStore,
    model: &DataParallel<M>,
    loss: impl FnOnce() -> Result<Tensor>,
) -> Result<Outcome> {
    let trace = Trace::new();
    model.set_trace(&trace);
    let loss = loss()?;
    vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
    model.backward(&loss)?;
    let mut events = trace.events();
    events.sort_by_key(|event| (event.step, event.device));
    Ok(Outcome { loss: number(&loss), gradients: gradients(vs), events })
}

/// One training step with the cross-entropy of the gathered outputs as its loss.
pub fn classify<M: ModuleT + Send>(
    (vs, model): &(VarStore, DataParallel<M>),
    (inputs, labels): &(Tensor, Tensor),
) -> Result<Outcome> {
    train(vs, model, || Ok(model.f_forward_t(inputs, true)?.cross_entropy_for_logits(labels)))
}

/// One training step of [`mlp`] on [`batch`], with the outputs on the device of this number.
pub fn step(rows: i64, devices: usize, output: usize) -> Result<Outcome> {
    let output = LogicalDevice::Cpu(output);
    classify(&with_output_on(output, &Devices::cpu(devices)?, mlp)?, &batch(rows))
}

/// The gradients of [`mlp`] on [`batch`] without DataParallel.
pub fn reference(rows: i64) -> Tensor {
    let (vs, model) = unwrapped(mlp);
    let (inputs, labels) = batch(rows);
    model.forward(&inputs).cross_entropy_for_logits(&labels).backward();
    gradients(&vs)
}

/// The largest difference, as a share of the largest expected value.
pub fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    number(&(found - expected).abs().max()) / number(&expected.abs().max())
}

/// The factor by which `expected` comes closest to `found`.
pub fn ratio(found: &Tensor, expected: &Tensor) -> f64 {
    let product = |a: &Tensor, b: &Tensor| number(&(a * b).sum(Kind::Double));
    product(found, expected) / product(expected, expected)
}

/// `equal` for a [`difference`] up to [`ROUNDING`], otherwise the difference in percent.
pub fn equality(difference: f64) -> String {
    let percent = 100.0 * difference;
    if difference <= ROUNDING { "equal".into() } else { format!("{percent:.1} % apart") }
}

/// A tensor's only number.
pub fn number(tensor: &Tensor) -> f64 {
    tensor.double_value(&[])
}

/// The bytes that one part of a step copied, event by event.
pub fn copied(events: &[Event], step: Step) -> Vec<usize> {
    events.iter().filter(|event| event.step == step).map(|event| event.bytes_copied).collect()
}

/// The bytes that one part of a step copied in all.
pub fn copied_by(events: &[Event], step: Step) -> usize {
    copied(events, step).into_iter().sum()
}
