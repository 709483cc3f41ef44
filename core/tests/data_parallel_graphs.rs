//! Models and losses of all shapes: DataParallel works as a part of the graph like any other.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use approx::assert_relative_eq;
use c10d_sys::autograd::{GraphEnd, backward};
use std::{collections::BTreeMap, sync::Barrier, sync::Mutex, thread};
use tch::{Device, Kind, Tensor, nn, nn::Module, nn::ModuleT, nn::VarStore, no_grad};
use tch_parallel::data_parallel::*;
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::{Devices, LogicalDevice, Replicated, Shared};
use tests::errors::expect_error;

/// Multiplies columns by a factor, and squares.
#[derive(Debug)]
struct Scale(Tensor);

impl Scale {
    fn new(p: &nn::Path<'_>) -> Self {
        Scale(p.var("factor", &[3], nn::Init::Const(2.0)))
    }
}

impl Module for Scale {
    fn forward(&self, xs: &Tensor) -> Tensor {
        (xs * &self.0).square()
    }
}

fn rows(count: i64) -> Tensor {
    (Tensor::arange(count * 3, (Kind::Float, Device::Cpu)) * 0.1 + 0.1).view([count, 3])
}

fn on_devices(count: usize) -> (VarStore, DataParallel<Scale>) {
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallel::new(Scale::new, &vs, &Devices::cpu(count).unwrap());
    (vs, model.unwrap())
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.view([-1])).unwrap()
}

#[test]
fn gradients_of_other_tensors_than_the_variables_are_refused() {
    let (vs, model) = on_devices(2);
    let inputs = rows(4).set_requires_grad(true);
    let loss = model.forward_t(&inputs, true).sum(Kind::Float);
    for (create_graph, expected) in [(false, "call `backward`"), (true, "`create_graph` is set")] {
        expect_error(Tensor::f_run_backward(&[&loss], &[&inputs], true, create_graph), expected);
        assert!(!vs.variables()["factor"].grad().defined());
    }
}

type Model<'a> = &'a dyn Fn(&Tensor) -> Tensor;

/// The gradients of a variable used before the model, and of the model, for a loss that uses the model.
fn gradients(devices: Option<usize>, loss: &dyn Fn(Model<'_>, &Tensor) -> Tensor) -> [Vec<f32>; 2] {
    let vs = VarStore::new(Device::Cpu);
    let before = Tensor::full([3], 1.5, (Kind::Float, Device::Cpu)).set_requires_grad(true);
    // Not a leaf: the loss and the model share this part of the graph.
    let inputs = (rows(5) * &before).tanh();
    if let Some(count) = devices {
        let model = DataParallel::new(Scale::new, &vs, &Devices::cpu(count).unwrap()).unwrap();
        loss(&|xs| model.forward_t(xs, true), &inputs).backward();
    } else {
        let model = Scale::new(&vs.root());
        loss(&|xs| model.forward(xs), &inputs).backward();
    }
    [numbers(&before.grad()), numbers(&vs.variables()["factor"].grad())]
}

#[track_caller]
fn assert_like_one_device(loss: impl Fn(Model<'_>, &Tensor) -> Tensor) {
    let expected = gradients(None, &loss);
    for count in 1..=3 {
        let found = gradients(Some(count), &loss);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(expected.iter().all(|gradient| *gradient != 0.0));
            // Sums over the rows are added up in another order.
            assert_relative_eq!(found[..], expected[..], max_relative = 1e-5);
        }
    }
}

#[test]
fn a_plain_backward_reaches_the_model_and_its_input_however_the_loss_uses_both() {
    assert_like_one_device(|model, xs| model(xs).sum(Kind::Float));
    assert_like_one_device(|model, xs| model(xs).narrow(0, 0, 1).sum(Kind::Float));
    assert_like_one_device(|model, xs| (xs * model(xs)).sum(Kind::Float));
    assert_like_one_device(|model, xs| (model(xs) + model(&(xs * 2.0))).sum(Kind::Float));
    assert_like_one_device(|model, xs| model(&model(xs)).sum(Kind::Float));
    assert_like_one_device(|model, xs| {
        let mut output = model(xs);
        let _ = output.g_mul_scalar_(3.0).relu_();
        output.sum(Kind::Float)
    });
}

#[test]
fn an_input_or_a_saved_output_that_is_changed_in_place_is_an_error_of_the_backward_pass() {
    let (_vs, model) = on_devices(2);
    let mut inputs = rows(5);
    let output = model.forward_t(&inputs, true);
    let _ = inputs.fill_(1.0);
    expect_error(model.backward(&output.sum(Kind::Float)), "modified by an inplace operation");
    let output = model.forward_t(&rows(5), true);
    // The square saves the output.
    let mut output_again = output.shallow_clone();
    let loss = output.square().sum(Kind::Float);
    let _ = output_again.g_mul_scalar_(2.0);
    expect_error(model.backward(&loss), "modified by an inplace operation");
}

#[test]
fn the_graph_may_be_kept_for_a_second_pass() {
    let (vs, model) = on_devices(2);
    let loss = model.forward_t(&rows(4), true).sum(Kind::Float);
    let factor = &vs.variables()["factor"];
    let retain_graph = true;
    backward(&[&GraphEnd::of(&loss).unwrap()], vec![loss.ones_like()], retain_graph).unwrap();
    let once = numbers(&(factor.grad() * 2.0));
    loss.backward();
    assert_eq!(numbers(&factor.grad()), once);
}

#[test]
fn one_of_several_outputs_may_be_left_out_of_the_loss() {
    let (vs, model) = on_devices(2);
    let pass = model.forward(rows(4), |module, xs| {
        let indices = Tensor::arange(xs.size()[0], (Kind::Int64, Device::Cpu));
        (module.forward(&xs), module.forward(&xs), indices)
    });
    let (used, _unused, index) = pass.unwrap();
    used.sum(Kind::Float).backward();
    let expected = (rows(4).square() * 4.0).sum_dim_intlist(0, false, Kind::Float);
    let [found, expected] = [&vs.variables()["factor"].grad(), &expected].map(numbers);
    assert_relative_eq!(found[..], expected[..], max_relative = 1e-6);
    assert_eq!(index, Tensor::from_slice(&[0i64, 1, 0, 1]));
}

#[test]
fn a_sparse_gradient_is_summed_as_well() {
    let vs = VarStore::new(Device::Cpu);
    let build = |p: &nn::Path<'_>| {
        nn::embedding(p, 5, 2, nn::EmbeddingConfig { sparse: true, ..Default::default() })
    };
    let model = DataParallel::new(build, &vs, &Devices::cpu(2).unwrap()).unwrap();
    let tokens = Tensor::from_slice(&[1i64, 2, 1, 4]);
    model.forward_t(&tokens, true).sum(Kind::Float).backward();
    let gradient = vs.variables()["weight"].grad().to_dense(None, false);
    let rows = numbers(&gradient.sum_dim_intlist(1, false, Kind::Float));
    // Token 1 is in both halves of the batch.
    assert_eq!(rows, [0.0, 4.0, 2.0, 0.0, 2.0]);
}

#[test]
fn what_is_replicated_comes_whole_to_every_device() {
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallelModel::new(Scale::new, &vs, &Devices::cpu(2).unwrap()).unwrap();
    let weights = Tensor::from_slice(&[1f32, 2.0, 3.0]);
    let outputs = model.f_forward_t(&rows(4), true).unwrap();
    let criterion = DataParallelCriterion::weighted(
        |output: &Tensor, (target, Replicated(weights)): &(Tensor, Replicated<Tensor>)| {
            assert_eq!(LogicalDevice::of(weights), LogicalDevice::of(output));
            let value = (output * weights - target).mean(Kind::Float);
            vec![Mean { value, count: Tensor::from(target.size()[0]) }]
        },
    );
    let loss = criterion.forward(outputs, (rows(4), Replicated(weights.shallow_clone()))).unwrap();
    let expected = ((rows(4) * 2.0).square() * weights - rows(4)).mean(Kind::Float);
    let [found, expected] = [loss.value(), &expected].map(|loss| loss.double_value(&[]));
    assert_relative_eq!(found, expected, max_relative = 1e-6);
}

#[test]
fn several_threads_may_train_one_model_in_turns() {
    const PASSES: usize = 100;
    let (vs, model) = on_devices(2);
    let together = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let ones = Tensor::ones([4, 3], (Kind::Float, Device::Cpu));
                for _ in 0..PASSES {
                    let loss = model.forward_t(&ones, true).sum(Kind::Float);
                    together.wait();
                    model.backward(&loss).unwrap();
                }
            });
        }
    });
    // 2·factor for each of four rows. All are whole numbers, so a lost gradient would show.
    assert_eq!(numbers(&vs.variables()["factor"].grad()), [(2 * PASSES * 4 * 2 * 2) as f32; 3]);
}

#[test]
fn within_another_thread_pool_its_other_tasks_wait() {
    let (_vs, model) = on_devices(2);
    let model = Mutex::new(model);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|_| {
                let _ = no_grad(|| model.try_lock().unwrap().forward_t(&rows(4), false));
            });
        }
    });
}

#[test]
fn a_graph_from_before_a_change_of_the_weights_is_refused() {
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallelModel::new(Scale::new, &vs, &Devices::cpu(2).unwrap()).unwrap();
    // Only rows of the second device count, so only the replica's graph is used.
    let criterion = DataParallelCriterion::weighted(|output: &Tensor, target: &Tensor| {
        vec![Mean { value: output.mean(Kind::Float), count: target.sum(Kind::Int64) }]
    });
    let forward = || {
        // Multiplying by the parameter saves it for the backward pass.
        let outputs = model.forward(rows(4), |module, xs| module.forward(&xs) * &module.0).unwrap();
        criterion.forward(outputs, Tensor::from_slice(&[0i64, 0, 1, 1])).unwrap()
    };
    let (unchanged, stale) = (forward(), forward());
    unchanged.backward().unwrap();
    let mut factor = vs.variables()["factor"].shallow_clone();
    let _ = no_grad(|| factor.g_mul_scalar_(2.0));
    let _newer = forward();
    expect_error(stale.backward(), "has been modified by an inplace operation");
}

#[test]
fn replicas_keep_no_outputs_and_the_output_device_holds_the_loss() {
    // Devices that no other test here uses.
    let [first, second, output] = [30, 31, 32].map(LogicalDevice::Cpu);
    let devices = Devices::new([first, second]).unwrap();
    let vs = VarStore::new(Device::Cpu);
    let options = DataParallelOptions { output_device: Some(output), ..Default::default() };
    let build = |p: &nn::Path<'_>| nn::linear(p, 2, 1000, Default::default());
    let model = DataParallel::with_options(build, &vs, &devices, options).unwrap();
    let inputs = Tensor::ones([200, 2], (Kind::Float, Device::Cpu));
    let live = |device| memory_allocated(device).unwrap();
    let before = live(second);
    let logits = model.forward_t(&inputs, true);
    // A linear layer needs its input for the backward pass, which is 100 rows of 2 floats.
    assert_eq!(live(second) - before, 100 * 2 * 4);
    assert_eq!(live(output), 200 * 1000 * 4);
    reset_peak_memory_stats(first).unwrap();
    let peak_before = max_memory_allocated(first).unwrap();
    let loss = {
        let _on = model.output_device().guard().unwrap();
        logits.mean(Kind::Float)
    };
    model.backward(&loss).unwrap();
    // The first device gets its half of the outputs' gradient, not all of it.
    let peak = max_memory_allocated(first).unwrap() - peak_before;
    assert!((400_000..500_000).contains(&peak), "{peak}");
}

#[test]
fn an_output_on_another_device_than_the_only_one_keeps_the_inputs_graph_whole() {
    let vs = VarStore::new(Device::Cpu);
    let output_device = Some(LogicalDevice::Cpu(1));
    let options = DataParallelOptions { output_device, ..Default::default() };
    let one = Devices::cpu(1).unwrap();
    let model = DataParallel::with_options(Scale::new, &vs, &one, options).unwrap();
    let xs = rows(4).set_requires_grad(true);
    let hidden = xs.square();
    let loss = model.forward_t(&hidden, true).sum(Kind::Float) + hidden.sum(Kind::Float);
    model.backward(&loss).unwrap();
    let expected = (xs.square() * 8.0 + 1.0) * 2.0 * &xs;
    let [found, expected] = [&xs.grad(), &expected].map(numbers);
    assert_relative_eq!(found[..], expected[..], max_relative = 1e-6);
}

#[test]
fn a_module_without_inputs_runs_on_the_first_device_only() {
    for count in 1..=3 {
        let (vs, model) = on_devices(count);
        let seen = Mutex::new(Vec::new());
        let output = model.forward((), |module, ()| {
            let output = &module.0 * 3.0;
            seen.lock().unwrap().push(LogicalDevice::of(&output));
            output
        });
        let output = output.unwrap();
        assert_eq!(*seen.lock().unwrap(), [LogicalDevice::Cpu(0)]);
        assert_eq!(numbers(&output), [6.0; 3]);
        model.backward(&output.sum(Kind::Float)).unwrap();
        assert_eq!(numbers(&vs.variables()["factor"].grad()), [3.0; 3]);
    }
}

#[test]
fn the_tensors_of_a_map_are_divided_under_their_keys() {
    let inputs = BTreeMap::from([("rows", rows(4)), ("others", rows(4) * 2)]);
    let parts = scatter(&inputs, &Devices::cpu(2).unwrap(), 0).unwrap();
    assert_eq!(gather(&parts, LogicalDevice::Cpu(0), 0).unwrap(), inputs);
    assert_eq!(parts[1]["rows"], rows(4).narrow(0, 2, 2));
}

#[test]
fn without_a_tensor_to_divide_every_device_gets_the_other_values() {
    assert_eq!(scatter(&Shared(5), &Devices::cpu(2).unwrap(), 0).unwrap(), [Shared(5); 2]);
    let (vs, model) = on_devices(2);
    let output = model.forward(Shared(5.0), |module, Shared(factor)| &module.0 * factor).unwrap();
    assert_eq!(numbers(&output), [10.0; 6]);
    model.backward(&output.sum(Kind::Float)).unwrap();
    assert_eq!(numbers(&vs.variables()["factor"].grad()), [10.0; 3]);
}

#[test]
fn gradients_go_through_scatter_and_gather_also_of_single_numbers_and_of_some_chunks() {
    let inputs = rows(5).set_requires_grad(true);
    let chunks = scatter(&inputs, &Devices::cpu(3).unwrap(), 0).unwrap();
    let factors = [2.0, -3.0, 5.0];
    let parts: Vec<_> = chunks.iter().zip(factors).map(|(chunk, factor)| chunk * factor).collect();
    let whole = gather(&parts, LogicalDevice::Cpu(1), 0).unwrap();
    let factors = Tensor::from_slice(&[2f32, 2.0, -3.0, -3.0, 5.0]);
    let rows_times_factors = rows(5) * factors.view([5, 1]);
    assert_eq!(whole, rows_times_factors);
    (whole * rows(5)).sum(Kind::Float).backward();
    assert_eq!(inputs.grad(), rows_times_factors);

    // A chunk without a part in the loss has zeros.
    let inputs = rows(2).set_requires_grad(true);
    scatter(&inputs, &Devices::cpu(2).unwrap(), 0).unwrap()[1].sum(Kind::Float).backward();
    assert_eq!(numbers(&inputs.grad()), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);

    let single: Vec<_> = [2f32, 3.0].map(|x| Tensor::from(x).set_requires_grad(true)).into();
    let whole = gather(&single, LogicalDevice::Cpu(0), 0).unwrap();
    (&whole * &whole).sum(Kind::Float).backward();
    assert_eq!(single[1].grad().double_value(&[]), 6.0);
}
