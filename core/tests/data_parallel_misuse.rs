//! What DataParallel rejects, and what it leaves behind when something fails.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use std::{sync::Arc, sync::Mutex, sync::mpsc, thread, time::Duration};
use tch::{Device, Kind, Tensor, nn, nn::ModuleT, nn::Path, nn::VarStore};
use tch_parallel::optim::{OptimizerInBackward, Sgd, SgdOptions};
use tch_parallel::{Devices, LogicalDevice, data_parallel::*, memory::memory_allocated};
use tests::errors::{expect_error, expect_error_start, message};

fn linear(p: &nn::Path<'_>) -> nn::Linear {
    nn::linear(p, 2, 3, Default::default())
}

fn model(count: usize) -> (VarStore, DataParallel<nn::Linear>) {
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallel::new(linear, &vs, &Devices::cpu(count).unwrap()).unwrap();
    (vs, model)
}

fn ones(shape: &[i64]) -> Tensor {
    Tensor::ones(shape, (Kind::Float, Device::Cpu))
}

#[test]
fn a_second_backward_pass_is_refused() {
    let (_vs, model) = model(2);
    let loss = model.forward_t(&ones(&[4, 2]), true).square().sum(Kind::Float);
    model.backward(&loss).unwrap();
    expect_error(model.backward(&loss), "Trying to backward through the graph a second time");
}

#[test]
fn the_model_cannot_be_used_within_its_own_forward_pass() {
    for count in [1, 2] {
        let (_vs, model) = model(count);
        let inputs = || ones(&[4, 2]);
        let again = model.forward(inputs(), |_, xs| model.f_forward_t(&xs, true).unwrap());
        expect_error(again, "used within its own forward pass");
        let again = model.forward(inputs(), |_, xs| model.module().forward_t(&xs, true));
        expect_error(again, "module() is called within a forward pass of the same model");
    }
}

#[test]
fn a_forward_pass_does_not_wait_for_a_guard_of_its_own_thread() {
    let (sender, ended) = mpsc::channel();
    let passes = thread::spawn(move || {
        for count in [1, 2] {
            let (_vs, model) = model(count);
            let module = model.module();
            let pass = model.f_forward_t(&ones(&[4, 2]), true);
            expect_error(pass, "used while a guard of its `module()` exists");
            drop(module);
            let _ = model.f_forward_t(&ones(&[4, 2]), true).unwrap();
        }
        sender.send(()).unwrap();
    });
    // Otherwise the thread would wait for itself forever.
    assert_ne!(ended.recv_timeout(Duration::from_secs(20)), Err(mpsc::RecvTimeoutError::Timeout));
    passes.join().unwrap();
}

#[test]
#[should_panic = "while this thread already has the module"]
fn a_thread_has_one_guard_of_the_module() {
    let (_vs, model) = model(2);
    let _first = model.module();
    let _second = model.module();
}

#[test]
fn steps_in_the_backward_pass_would_miss_the_other_devices_gradients_and_are_refused() {
    let (vs, model) = model(2);
    let sgd = Arc::new(Mutex::new(Sgd::new(&vs, SgdOptions::default()).unwrap()));
    let in_backward = OptimizerInBackward::new(sgd).unwrap();
    let loss = || model.forward_t(&ones(&[4, 2]), true).sum(Kind::Float);
    expect_error(model.backward(&loss()), "DataParallel on several devices is in Distributed");
    drop(in_backward);
    assert!(!vs.variables()["weight"].grad().defined());
}

#[test]
fn a_vector_has_no_backward_pass() {
    let (_vs, model) = model(2);
    let losses =
        model.forward(ones(&[4, 2]), |module, xs| module.forward_t(&xs, true).mean(Kind::Float));
    let expected = "grad can be implicitly created only for scalar outputs";
    expect_error(model.backward(&losses.unwrap()), expected);
}

#[test]
fn a_loss_without_a_graph_has_no_backward_pass() {
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallelModel::new(linear, &vs, &Devices::cpu(2).unwrap()).unwrap();
    let criterion =
        DataParallelCriterion::new(|output: &Tensor, _: &Tensor| output.mean(Kind::Float));
    let outputs = model.f_forward_t(&ones(&[4, 2]), true).unwrap();
    let loss = tch::no_grad(|| criterion.forward(outputs, ones(&[4]))).unwrap();
    expect_error(loss.backward(), "the loss is without a graph");
}

#[test]
fn batches_that_cannot_be_divided_are_refused() {
    let (_vs, model) = model(2);
    let error = message(model.f_forward_t(&ones(&[0, 2]), true));
    assert_eq!(error, "inputs is a batch of 0 rows, but must be at least one row");
    let expected = "inputs is a tensor of shape [], to be split along dimension 0";
    expect_error_start(model.f_forward_t(&Tensor::from(1.0), true), expected);
    let expected = "inputs is batches of [4, 3] rows, but must be of the same number of rows, so that what belongs \
                    together stays together";
    assert_eq!(message(model.forward((ones(&[4, 2]), ones(&[3])), |_, (xs, _)| xs)), expected);
}

#[test]
fn a_replica_that_fails_is_named_and_the_model_goes_on() {
    let (_vs, model) = model(3);
    // Six rows on three devices: the second device gets the rows 2 and 3.
    let inputs = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([6, 2]);
    let error = message(model.forward(inputs.shallow_clone(), |module, xs| {
        assert!(xs.double_value(&[0, 0]) != 4.0, "these rows are bad");
        module.forward_t(&xs, true)
    }));
    assert_eq!(error, "the replica on cpu:1 failed in forward: these rows are bad");
    model.backward(&model.forward_t(&inputs, true).sum(Kind::Float)).unwrap();
}

#[test]
fn a_backward_pass_that_fails_on_a_replica_names_it_and_leaves_no_gradient_there() {
    let (vs, model) = model(2);
    let inputs = Tensor::arange(8, (Kind::Float, Device::Cpu)).view([4, 2]);
    let output = model.forward(inputs.shallow_clone(), |module, xs| {
        let mut hidden = module.forward_t(&xs, true).exp();
        let output = &hidden * 2.0;
        if xs.double_value(&[0, 0]) == 4.0 {
            // exp needs its result for the backward pass, and here it is overwritten.
            let _ = tch::no_grad(|| hidden.zero_());
        }
        output
    });
    let expected =
        "backward failed: the replica on cpu:1 failed in backward: one of the variables needed";
    expect_error_start(model.backward(&output.unwrap().sum(Kind::Float)), expected);
    // As in PyTorch, the caller must clear what the failed pass has left on the original.
    vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
    model.backward(&model.forward_t(&inputs, true).sum(Kind::Float)).unwrap();
    assert_eq!(Vec::<f32>::try_from(vs.variables()["bias"].grad()).unwrap(), [4.0; 3]);
}

#[test]
fn devices_that_are_not_there_are_refused() {
    let vs = VarStore::new(Device::Cpu);
    let on = |device| {
        let options = DataParallelOptions { output_device: Some(device), ..Default::default() };
        DataParallel::with_options(linear, &vs, &Devices::cpu(2).unwrap(), options).map(drop)
    };
    let expected = "device is cpu:64, but must be one of cpu:0 to cpu:63";
    assert_eq!(message(on(LogicalDevice::Cpu(64))), expected);
    expect_error_start(on(LogicalDevice::Cuda(99)), "device is cuda:99, but must be ");
    expect_error_start("cuda:98,cuda:99".parse::<Devices>(), "device is cuda:98, but must be ");
}

#[test]
fn a_model_on_another_device_is_refused() {
    let devices = Devices::new([LogicalDevice::Cpu(3), LogicalDevice::Cpu(4)]).unwrap();
    let elsewhere = |p: &Path<'_>| {
        let _elsewhere = LogicalDevice::Cpu(5).guard().unwrap();
        linear(p)
    };
    let model = DataParallel::new(elsewhere, &VarStore::new(Device::Cpu), &devices);
    let expected = "variable bias is on cpu:5, but must be on cpu:3, the first device, where the original is; make \
                    and convert it under that device's guard";
    assert_eq!(message(model), expected);
}

#[test]
fn a_store_that_has_the_model_already_is_refused() {
    let vs = VarStore::new(Device::Cpu);
    let _model = linear(&vs.root());
    let again = DataParallel::new(linear, &vs, &Devices::cpu(2).unwrap());
    expect_error(again, "vs must not have them yet");
}

#[test]
fn criteria_and_targets_that_do_not_fit_are_refused() {
    type Criterion = DataParallelCriterion<Tensor, Tensor>;
    let refused = |targets, criterion: Criterion| {
        let vs = VarStore::new(Device::Cpu);
        let model = DataParallelModel::new(linear, &vs, &Devices::cpu(4).unwrap()).unwrap();
        let outputs = model.f_forward_t(&ones(&[8, 2]), true).unwrap();
        criterion.forward(outputs, ones(&[targets])).map(drop)
    };
    let expected = "targets is divided into [2, 2, 2, 1] rows, but must be divided into [2, 2, 2, 2] rows, as the \
                    inputs were";
    assert_eq!(message(refused(7, Criterion::new(|output, _| output.sum(Kind::Float)))), expected);
    let none = Criterion::weighted(|_, _| Vec::<Mean>::new());
    expect_error(refused(8, none), "a function that returned [0, 0, 0, 0] means");
    let expected = "a mean's value is of shape [2, 3], but must be a single number";
    expect_error_start(refused(8, Criterion::new(|output, _| output.square())), expected);
}

#[test]
fn outputs_that_do_not_fit_together_are_refused() {
    let (_vs, model) = model(2);
    let inputs = Tensor::arange(8, (Kind::Float, Device::Cpu)).view([4, 2]);
    let error = message(model.forward(inputs, |_, xs| {
        let columns = if xs.double_value(&[0, 0]) == 0.0 { 1 } else { 2 };
        xs.narrow(1, 0, columns)
    }));
    let expected = "outputs is [(Float, [2, 1]), (Float, [2, 2])] on the replicas, but must be of the same kind and \
                    shape, except in dimension 0";
    assert_eq!(error, expected);
}

#[test]
fn outputs_that_nobody_uses_leave_nothing_behind() {
    // Devices that no other test here uses.
    let devices = Devices::new([40, 41].map(LogicalDevice::Cpu)).unwrap();
    let vs = VarStore::new(Device::Cpu);
    let model = DataParallel::new(linear, &vs, &devices).unwrap();
    let live = || devices.iter().map(|it| memory_allocated(it).unwrap()).collect::<Vec<_>>();
    let before = live();
    (0..3).for_each(|_| drop(model.forward_t(&ones(&[1000, 2]), true)));
    assert_eq!(live(), before);
    // Nor does a step, except for the gradients of 2 x 3 weights and 3 biases.
    model.backward(&model.forward_t(&ones(&[1000, 2]), true).sum(Kind::Float)).unwrap();
    assert_eq!(live(), [before[0] + 9 * 4, before[1]]);
}

#[test]
fn a_data_parallel_may_be_dropped_during_a_backward_pass_on_another_thread() {
    for _ in 0..100 {
        let (_vs, model) = model(2);
        let loss = model.forward_t(&ones(&[4, 2]), true).sum(Kind::Float);
        let backward = thread::spawn(move || loss.f_backward().map(|()| loss.double_value(&[])));
        drop(model);
        // Whether the pass or the drop was first, the pass ends.
        let _ = backward.join().unwrap();
    }
}

#[test]
fn a_job_that_fails_names_its_device_and_lets_the_others_end() {
    let workers = Workers::new(&Devices::cpu(3).unwrap()).unwrap();
    let add_two = |_, rows| Ok(ones(&[rows]) + ones(&[2]));
    let error = message(workers.parallel_apply("forward", vec![2, 3, 2], add_two));
    let expected = "the replica on cpu:1 failed in forward: The size of tensor a (3) must match the size of tensor b \
                    (2) at non-singleton dimension 0";
    assert_eq!(error, expected);
    // The threads can still be used, with a device that has no job.
    let results = workers.parallel_apply("test", vec![1, 2], |_, job| Ok(job));
    assert_eq!(results.unwrap(), [1, 2]);
}
