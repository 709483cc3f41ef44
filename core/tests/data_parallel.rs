//! DataParallel's promise: the same numbers as on one device.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use approx::assert_relative_eq;
use std::sync::{Barrier, Mutex, PoisonError, atomic::AtomicUsize, atomic::Ordering};
use tch::{Device, Kind, Reduction, Tensor, nn, nn::ModuleT, nn::VarStore, no_grad};
use tch_parallel::data_parallel::*;
use tch_parallel::nn::{CheckpointWrapper, channels_last};
use tch_parallel::{Devices, LogicalDevice, Shared};
use tests::errors::expect_error;

/// Builds from the same seed every time. The lock is needed because all tests share one generator and run in parallel,
/// and because a wrapper puts the generator's state back, whether its model draws or not.
fn seeded<R>(build: impl FnOnce() -> R) -> R {
    static GENERATOR: Mutex<()> = Mutex::new(());
    let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(7);
    build()
}

fn mlp(p: &nn::Path<'_>) -> nn::SequentialT {
    nn::seq_t()
        .add(nn::linear(p / "0", 6, 8, Default::default()))
        .add_fn(|xs| xs.tanh())
        .add(nn::linear(p / "2", 8, 3, Default::default()))
}

fn batch(rows: i64) -> (Tensor, Tensor) {
    let inputs = (Tensor::arange(rows * 6, (Kind::Float, Device::Cpu)) * 0.7).sin().view([rows, 6]);
    (inputs, Tensor::arange(rows, (Kind::Int64, Device::Cpu)).remainder(3))
}

fn gradients(vs: &VarStore) -> Vec<f32> {
    let flat: Vec<_> = vs.trainable_variables().iter().map(|v| v.grad().view([-1])).collect();
    Tensor::cat(&flat, 0).try_into().unwrap()
}

/// The gradients of the same model and batch on one device, without DataParallel.
fn reference(rows: i64) -> (f64, Vec<f32>) {
    let vs = VarStore::new(Device::Cpu);
    let model = seeded(|| mlp(&vs.root()));
    let (inputs, labels) = batch(rows);
    let loss = model.forward_t(&inputs, true).cross_entropy_for_logits(&labels);
    loss.backward();
    (loss.double_value(&[]), gradients(&vs))
}

fn devices(count: usize) -> Devices {
    Devices::cpu(count).unwrap()
}

type Model = DataParallel<nn::SequentialT>;

fn on_devices(count: usize, options: DataParallelOptions) -> (VarStore, Model) {
    let vs = VarStore::new(Device::Cpu);
    let model = seeded(|| DataParallel::with_options(mlp, &vs, &devices(count), options)).unwrap();
    (vs, model)
}

/// A forward and a backward pass with a batch of this many rows; returns the output's device and the loss.
fn pass(model: &Model, rows: i64) -> (LogicalDevice, f64) {
    let (inputs, labels) = batch(rows);
    let logits = model.forward_t(&inputs, true);
    let loss = logits.cross_entropy_for_logits(&labels);
    model.backward(&loss).unwrap();
    (LogicalDevice::of(&logits), loss.double_value(&[]))
}

/// Equal up to rounding: a gradient is a sum over the rows, computed in parts on several devices and in one go on one.
fn assert_equal(found: &[f32], expected: &[f32]) {
    let scale = expected.iter().fold(0f32, |max, value| max.max(value.abs()));
    assert!(scale > 0.0);
    assert_relative_eq!(found, expected, epsilon = 1e-6 * scale, max_relative = 1e-6);
}

#[test]
fn gradients_are_those_of_the_unwrapped_model_for_any_devices_batch_and_output_device() {
    for count in 1..=4 {
        for rows in [1, 3, 4, 5, 6, 10, 12] {
            let (expected_loss, expected) = reference(rows);
            // The last output device, one beyond the model's, has no replica.
            for output in (0..=count).map(LogicalDevice::Cpu) {
                let options =
                    DataParallelOptions { output_device: Some(output), ..Default::default() };
                let (vs, model) = on_devices(count, options);
                let (device, loss) = pass(&model, rows);
                assert_eq!(device, output);
                assert_relative_eq!(loss, expected_loss, max_relative = 1e-6);
                assert_equal(&gradients(&vs), &expected);
            }
        }
    }
}

#[test]
fn one_device_gives_the_unwrapped_models_bits() {
    let (vs, model) = on_devices(1, DataParallelOptions::default());
    pass(&model, 10);
    assert_eq!(gradients(&vs), reference(10).1);
}

#[test]
fn gradients_repeat_to_the_last_bit() {
    let runs = [(); 11].map(|()| {
        let (vs, model) = on_devices(4, DataParallelOptions::default());
        pass(&model, 10);
        gradients(&vs)
    });
    assert_eq!(runs[1..], [runs[0].as_slice(); 10]);
}

#[test]
fn the_sum_over_the_devices_is_added_to_earlier_gradients() {
    let (vs, model) = on_devices(3, Default::default());
    let accumulated = [(); 2].map(|()| {
        pass(&model, 12);
        gradients(&vs)
    });
    // Added one device after the other, some would be rounded.
    let twice: Vec<_> = accumulated[0].iter().map(|once| 2.0 * once).collect();
    assert_eq!(accumulated[1], twice);
}

#[test]
fn several_inputs_and_outputs_are_divided_and_gathered_in_their_order() {
    let (_vs, model) = on_devices(3, DataParallelOptions::default());
    let (inputs, labels) = batch(7);
    let given = (inputs.shallow_clone(), labels.shallow_clone(), Shared(2.0));
    let pass = || {
        model.forward(given, |module, (inputs, labels, Shared(scale))| {
            (module.forward_t(&inputs, false) * scale, (labels, Tensor::from(inputs.size()[0])))
        })
    };
    let (logits, (same_labels, rows)) = no_grad(pass).unwrap();
    let expected = no_grad(|| model.module().forward_t(&inputs, false)) * 2.0;
    let [found, expected] =
        [logits, expected].map(|all| Vec::<f32>::try_from(all.view([-1])).unwrap());
    assert_equal(&found, &expected);
    assert_eq!(same_labels, labels);
    // The replicas' single numbers are gathered into a vector.
    assert_eq!(Vec::<i64>::try_from(&rows).unwrap(), [3, 3, 1]);
}

#[test]
fn batches_may_lie_along_another_dimension() {
    let vs = VarStore::new(Device::Cpu);
    let options = DataParallelOptions { dim: 1, ..Default::default() };
    let scale = |p: &nn::Path<'_>| p.ones("scale", &[4, 1]);
    let model = seeded(|| DataParallel::with_options(scale, &vs, &devices(2), options)).unwrap();
    let inputs = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([4, 3]);
    let outputs = model.forward(inputs.shallow_clone(), |scale, xs| scale * xs).unwrap();
    assert_eq!(outputs.detach(), inputs);
    model.backward(&(outputs * &inputs).sum(Kind::Float)).unwrap();
    let expected = inputs.square().sum_dim_intlist(1, true, Kind::Float);
    assert_eq!(vs.trainable_variables()[0].grad(), expected);
}

#[test]
fn channels_that_are_last_in_memory_stay_so() {
    let parts = [1, 2].map(|rows| Tensor::ones([rows, 2, 3, 4], (Kind::Float, Device::Cpu)));
    let turned = parts.each_ref().map(|part| channels_last(part).unwrap());
    for (parts, strides) in [(parts, [24, 12, 4, 1]), (turned, [24, 1, 8, 2])] {
        assert_eq!(gather(&parts, LogicalDevice::Cpu(0), 0).unwrap().stride(), strides);
    }
}

#[test]
fn what_a_model_draws_besides_its_variables_is_the_same_on_every_device() {
    let vs = VarStore::new(Device::Cpu);
    let noise = |_: &nn::Path<'_>| Tensor::randn([3], (Kind::Float, Device::Cpu));
    let model = seeded(|| DataParallel::new(noise, &vs, &devices(2))).unwrap();
    let inputs = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu));
    let outputs = model.forward(inputs, |noise, xs| xs + noise).unwrap();
    assert_eq!(outputs.get(0), outputs.get(1));
}

#[test]
fn a_block_that_cannot_draw_its_numbers_again_fails() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    static MEET: Barrier = Barrier::new(2);
    let vs = VarStore::new(Device::Cpu);
    let build = |p: &nn::Path<'_>| (p.ones("scale", &[64]), CheckpointWrapper::new(()));
    let inputs = Tensor::ones([8, 64], (Kind::Float, Device::Cpu));
    let block = |(): &(), xs: Tensor| {
        if CALLS.fetch_add(1, Ordering::Relaxed) < 2 {
            MEET.wait();
        }
        xs.dropout(0.5, true)
    };
    let pass =
        |(scale, wrapper): &(Tensor, CheckpointWrapper<()>), xs| wrapper.call(xs * scale, block);
    let backward = seeded(|| {
        let model = DataParallel::new(build, &vs, &devices(2)).unwrap();
        let outputs = model.forward(inputs, pass).unwrap();
        model.backward(&outputs.sum(Kind::Float))
    });
    expect_error(backward, "logical devices share a generator");
}

#[test]
fn a_frozen_parameter_gets_no_gradient_on_any_replica() {
    let (vs, model) = on_devices(2, DataParallelOptions::default());
    let mut frozen = vs.variables()["0.weight"].shallow_clone();
    let _ = frozen.requires_grad_(false);
    pass(&model, 6);
    assert!(!frozen.grad().defined());
    assert!(vs.variables()["0.bias"].grad().defined());
}

#[test]
fn a_model_converted_to_another_kind_is_converted_on_every_device() {
    let (mut vs, model) = on_devices(2, DataParallelOptions::default());
    vs.double();
    let output = no_grad(|| model.forward_t(&batch(4).0.to_kind(Kind::Double), false));
    assert_eq!((output.kind(), output.size()), (Kind::Double, vec![4, 3]));
}

#[test]
fn of_running_statistics_the_originals_survive() {
    let build = |p: &nn::Path<'_>| nn::batch_norm1d(p / "bn", 2, Default::default());
    let mean = |count, rows: i64| {
        let vs = VarStore::new(Device::Cpu);
        let model = seeded(|| DataParallel::new(build, &vs, &devices(count))).unwrap();
        let inputs = Tensor::arange(rows * 2, (Kind::Float, Device::Cpu)).view([rows, 2]);
        let _ = no_grad(|| model.forward_t(&inputs, true));
        vs.variables()["bn.running_mean"].copy()
    };
    // Two devices see four rows each; the original sees the first four.
    assert_eq!(mean(2, 8), mean(1, 4));
    assert_ne!(mean(2, 8), mean(1, 8));
}

#[test]
fn the_weighted_loss_gives_the_same_gradients_for_all_chunks_and_the_plain_one_for_even_ones() {
    let even = [(1, 6), (2, 6), (3, 6), (4, 12), (4, 6)];
    for (count, rows) in even.into_iter().chain([(2, 5), (3, 7), (4, 10), (4, 5)]) {
        let (value, found) = with_parallel_criterion(count, &batch(rows), weighted());
        let (expected_value, expected) = reference(rows);
        assert_relative_eq!(value, expected_value, max_relative = 1e-6);
        assert_equal(&found, &expected);
        let plain = DataParallelCriterion::new(cross_entropy);
        let (value, found) = with_parallel_criterion(count, &batch(rows), plain);
        let even = even.contains(&(count, rows));
        assert_eq!((value - expected_value).abs() < 1e-6, even, "{count} devices, {rows} rows");
        assert_eq!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), even);
    }
}

#[test]
fn a_chunk_whose_targets_are_all_masked_does_not_spoil_the_weighted_loss() {
    // The second device's two rows are masked.
    let data = (batch(4).0, Tensor::from_slice(&[1i64, 2, -100, -100]));
    let run = |count, criterion| with_parallel_criterion(count, &data, criterion);
    let (expected, (value, found)) = (run(1, weighted()), run(2, weighted()));
    assert_relative_eq!(value, expected.0, max_relative = 1e-6);
    assert_equal(&found, &expected.1);
    assert!(run(2, DataParallelCriterion::new(cross_entropy)).0.is_nan());
}

fn cross_entropy(output: &Tensor, target: &Tensor) -> Tensor {
    output.cross_entropy_loss::<Tensor>(target, None, Reduction::Mean, -100, 0.0)
}

/// A mean over the targets that are not masked.
fn weighted() -> DataParallelCriterion<Tensor, Tensor> {
    DataParallelCriterion::weighted(|output: &Tensor, target: &Tensor| {
        let count = target.ne(-100).sum(Kind::Int64);
        vec![Mean { value: cross_entropy(output, target), count }]
    })
}

fn with_parallel_criterion(
    count: usize,
    (inputs, labels): &(Tensor, Tensor),
    criterion: DataParallelCriterion<Tensor, Tensor>,
) -> (f64, Vec<f32>) {
    let vs = VarStore::new(Device::Cpu);
    let model = seeded(|| DataParallelModel::new(mlp, &vs, &devices(count))).unwrap();
    let outputs = model.f_forward_t(inputs, true).unwrap();
    let loss = criterion.forward(outputs, labels.shallow_clone()).unwrap();
    let value = loss.value().double_value(&[]);
    loss.backward().unwrap();
    (value, gradients(&vs))
}
