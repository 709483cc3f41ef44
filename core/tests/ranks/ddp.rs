//! DistributedDataParallel between processes, compared with one process that has all the data.

use crate::{prelude::*, weights::two_buckets};

/// The number of rows of each rank.
const ROWS: i64 = 6;

/// Sums of a few rows' gradients, added up in another order: a few units in the last place of values below 1.
const ROUNDING: f64 = 1e-6;

/// Three layers, of which the second can be skipped.
fn net(path: &nn::Path<'_>, skip: bool) -> nn::SequentialT {
    let layer = |name: &str, outputs| nn::linear(path / name, 4, outputs, Default::default());
    let (first, optional, last) = (layer("first", 4), layer("optional", 4), layer("last", 2));
    let first = nn::seq_t().add(first).add_fn(|xs| xs.tanh());
    let hidden = if skip { first } else { first.add(optional).add_fn(|xs| xs.tanh()) };
    hidden.add(last)
}

type Model = DistributedDataParallel<nn::SequentialT>;

fn wrapped(group: &ProcessGroup, skip: bool, options: DdpOptions) -> (VarStore, Model) {
    tch::manual_seed(10 + group.rank() as i64);
    ddp(group, options, |path| net(path, skip))
}

/// All the data of a step, the same on every rank.
fn batch(group: &ProcessGroup, step: i64) -> (Tensor, Tensor) {
    let rows = ROWS * group.world_size() as i64;
    let seed = |shift: i64| Tensor::arange(rows * 4, FLOAT_CPU) * 0.37 + (step * 7 + shift) as f64;
    (seed(0).sin().view([rows, 4]), seed(3).cos().view([rows, 4]).narrow(1, 0, 2))
}

fn part(group: &ProcessGroup, (xs, ys): &(Tensor, Tensor)) -> (Tensor, Tensor) {
    let start = ROWS * group.rank() as i64;
    (xs.narrow(0, start, ROWS), ys.narrow(0, start, ROWS))
}

fn loss(outputs: &Tensor, ys: &Tensor) -> Tensor {
    outputs.mse_loss(ys, tch::Reduction::Mean)
}

/// A forward and a backward pass with this rank's part of the data.
fn pass(group: &ProcessGroup, model: &Model, data: &(Tensor, Tensor)) {
    let (xs, ys) = part(group, data);
    model.backward(&loss(&model.f_forward_t(&xs, true).unwrap(), &ys)).unwrap();
}

/// The gradients of all the data in one process, from the same weights.
fn expected(vs: &VarStore, skip: bool, data: &[&(Tensor, Tensor)]) -> Vec<Tensor> {
    let mut alone = VarStore::new(Device::Cpu);
    let net = net(&alone.root(), skip);
    alone.copy(vs).unwrap();
    data.iter().for_each(|(xs, ys)| loss(&net.forward_t(xs, true), ys).backward());
    gradients(&alone)
}

fn assert_gradients(vs: &VarStore, expected: &[Tensor]) {
    for (gradient, expected) in gradients(vs).iter().zip(expected) {
        assert_eq!(gradient.defined(), expected.defined());
        if expected.defined() {
            let difference = f64::try_from((gradient - expected).abs().max()).unwrap();
            assert!(difference < ROUNDING, "{difference}");
        }
    }
}

#[run_by(on_ranks(2))]
fn gradients_are_those_of_one_process_with_all_the_data_whatever_the_options(group: &ProcessGroup) {
    let default = DdpOptions::default;
    for (skip, options) in [
        (false, default()),
        (false, DdpOptions { gradient_as_bucket_view: true, ..default() }),
        (false, two_buckets()),
        // With a layer that the loss does not use.
        (true, DdpOptions { find_unused_parameters: true, ..default() }),
        (true, DdpOptions { static_graph: true, ..default() }),
    ] {
        eprintln!("{options:?}");
        let (vs, model) = wrapped(group, skip, options);
        let mut optimizer = sgd(&vs, 0.1);
        for step in 0..4 {
            let data = batch(group, step);
            let expected = expected(&vs, skip, &[&data]);
            optimizer.zero_grad().unwrap();
            pass(group, &model, &data);
            assert_gradients(&vs, &expected);
            optimizer.step().unwrap();
        }
    }
}

#[run_by(on_ranks(2))]
fn a_parameter_without_a_gradient_is_named_at_the_next_forward_pass(group: &ProcessGroup) {
    let (_vs, model) = wrapped(group, true, DdpOptions::default());
    let data = batch(group, 0);
    pass(group, &model, &data);
    let error = model.f_forward_t(&data.0, true).unwrap_err();
    let Error::UnusedParameters { names, .. } = &error else { panic!("{error}") };
    assert_eq!(*names, ["optional.bias", "optional.weight"]);
}

#[run_by(on_ranks(2))]
fn gradients_add_up_until_no_guard_is_left_and_the_next_pass_exchanges_them(group: &ProcessGroup) {
    let (vs, model) = wrapped(group, false, DdpOptions::default());
    let data = [batch(group, 0), batch(group, 1)];
    let (first, last) = (model.no_sync(), model.no_sync());
    drop(first);
    pass(group, &model, &data[0]);
    let sums = checksums(group, &gradients(&vs));
    assert!((sums[0] - sums[1]).abs() > 1e-9, "so far each rank has its own gradients");
    drop(last);
    pass(group, &model, &data[1]);
    assert_gradients(&vs, &expected(&vs, false, &[&data[0], &data[1]]));
}

/// A number for each rank that depends on its tensors.
fn checksums(group: &ProcessGroup, tensors: &[Tensor]) -> Vec<f64> {
    let number = |tensor: &Tensor| tensor.double_value(&[]);
    let own: f64 = tensors.iter().map(|t| number(&(t * 1e3).sin().sum(Kind::Double))).sum();
    group.all_gather(&Tensor::from(own)).unwrap().iter().map(number).collect()
}

fn gradients(vs: &VarStore) -> Vec<Tensor> {
    vs.trainable_variables().iter().map(Tensor::grad).collect()
}

#[run_by(on_ranks(2))]
fn weights_and_momentum_stay_equal_because_gradients_are_exchanged(group: &ProcessGroup) {
    // The negative control: the same steps on the module itself drift apart.
    for exchanged in [true, false] {
        let (vs, model) = wrapped(group, false, DdpOptions::default());
        let mut optimizer = sgd(&vs, 0.1);
        for step in 0..3 {
            let (xs, ys) = part(group, &batch(group, step));
            let outputs = match exchanged {
                true => model.f_forward_t(&xs, true).unwrap(),
                false => model.module().forward_t(&xs, true),
            };
            optimizer.zero_grad().unwrap();
            model.backward(&loss(&outputs, &ys)).unwrap();
            optimizer.step().unwrap();
        }
        let weights = checksums(group, &vs.trainable_variables());
        let state = optimizer.state_dict().unwrap().tensors.into_iter();
        let momentum = checksums(group, &state.map(|(_, buffer)| buffer).collect::<Vec<_>>());
        assert_eq!(weights[0] == weights[1], exchanged);
        assert_eq!(momentum[0] == momentum[1], exchanged);
    }
}

#[run_by(on_ranks(2))]
fn a_module_with_two_outputs_is_wrapped_by_a_closure(group: &ProcessGroup) {
    let options = DdpOptions { find_unused_parameters: true, ..Default::default() };
    let (vs, model) = wrapped(group, false, options);
    let data = batch(group, 0);
    let (xs, ys) = part(group, &data);
    let pass = model.forward(|net| {
        let mut layers = net.forward_all_t(&xs, true, None);
        (layers.pop().unwrap(), layers.pop().unwrap())
    });
    let (outputs, hidden) = pass.unwrap();
    assert_eq!(hidden.size(), [ROWS, 4]);
    model.backward(&loss(&outputs, &ys)).unwrap();
    assert_gradients(&vs, &expected(&vs, false, &[&data]));
}

#[run_by(on_ranks(2))]
fn the_logging_data_tells_bucket_sizes_and_times(group: &ProcessGroup) {
    let (vs, model) = wrapped(group, false, two_buckets());
    (0..3).for_each(|step| pass(group, &model, &batch(group, step)));
    // The logging data of a step is written at the next forward pass.
    let _ = model.f_forward_t(&part(group, &batch(group, 3)).0, true).unwrap();
    let bytes: usize = vs.trainable_variables().iter().map(|t| t.numel() * 4).sum();
    let data = model.logging_data().unwrap();
    assert_eq!(data.num_parameter_tensors, 6);
    assert_eq!(data.total_parameter_size_bytes, bytes as u64);
    assert_eq!(data.bucket_sizes, [bytes as u64], "one bucket before the order is known");
    assert!(data.has_rebuilt_buckets);
    assert!(data.rebuilt_bucket_sizes.len() > 1, "{data:?}");
    assert_eq!(data.rebuilt_bucket_sizes.iter().sum::<u64>(), bytes as u64);
    let times = [data.avg_backward_compute_time, data.avg_backward_comm_time];
    assert!(times.iter().all(|time| !time.is_zero()), "{times:?}");
}

#[run_by(on_ranks(2))]
fn each_bucket_may_have_a_size_of_its_own(group: &ProcessGroup) {
    let bucket_cap_mb_list = [64.0, 32.0].map(|bytes| bytes / f64::powi(2.0, 20)).to_vec();
    let options = DdpOptions { bucket_cap_mb_list, ..Default::default() };
    let (vs, model) = wrapped(group, false, options);
    (0..3).for_each(|step| pass(group, &model, &batch(group, step)));
    let data = model.logging_data().unwrap();
    // As PyTorch 2.13 logs them. In tch a bias comes before the weight.
    let expected: [&[u64]; 2] = [&[40, 80, 80], &[120, 80]];
    assert_eq!([data.bucket_sizes, data.rebuilt_bucket_sizes], expected);
    let options = DdpOptions { bucket_cap_mb_list: vec![1.0, 0.0], ..Default::default() };
    let refused = DistributedDataParallel::with_options((), &vs, group, options);
    expect_error(refused, "bucket_cap_mb_list is 0, but must be more than 0 MiB");
}

#[run_by(on_ranks(2))]
fn wrapping_exchanges_nothing_without_init_sync(group: &ProcessGroup) {
    // Rank 1 does not even wrap a model.
    if group.rank() == 0 {
        let options = DdpOptions { init_sync: false, ..Default::default() };
        let _ = wrapped(group, false, options);
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn buffers_may_be_shared_at_first_alone(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let _ = vs.root().zeros("weight", &[1]);
    let buffer = vs.root().zeros_no_train("buffer", &[1]);
    let set = |value: f64| no_grad(|| buffer.shallow_clone().fill_(value));
    for (broadcast_buffers, forward_sync_buffers, expected) in
        [(true, true, [5., 7., 7.]), (true, false, [5., 8., 7.]), (false, true, [6., 8., 8.])]
    {
        let options = DdpOptions { broadcast_buffers, forward_sync_buffers, ..Default::default() };
        let _ = set(5.0 + group.rank() as f64);
        let model = DistributedDataParallel::with_options((), &vs, group, options).unwrap();
        let first = buffer.double_value(&[0]);
        let _ = set(7.0 + group.rank() as f64);
        let _ = model.forward(|()| buffer.copy()).unwrap();
        let second = buffer.double_value(&[0]);
        model.sync_buffers().unwrap();
        let expected = if group.rank() == 0 { [5.0, 7.0, 7.0] } else { expected };
        let found = [first, second, buffer.double_value(&[0])];
        assert_eq!(found, expected, "{broadcast_buffers} {forward_sync_buffers}");
    }
}

#[run_by(on_ranks(2))]
fn buckets_of_unused_parameters_may_stay_at_home(group: &ProcessGroup) {
    let reduced = [false, true].map(|skip_all_reduce_unused_params| {
        let options = DdpOptions {
            find_unused_parameters: true,
            skip_all_reduce_unused_params,
            bucket_cap_mb: Some(1e-6),
            ..Default::default()
        };
        let (_vs, model) = wrapped(group, true, options);
        (0..2).for_each(|step| pass(group, &model, &batch(group, step)));
        let _ = model.f_forward_t(&part(group, &batch(group, 2)).0, true).unwrap();
        assert_eq!(model.logged_text("backend_name").unwrap(), "gloo");
        model.logged_number("num_buckets_reduced").unwrap()
    });
    // One layer of three is skipped.
    assert_eq!(reduced, [6, 4]);
}

#[run_by(on_ranks(2))]
fn a_model_may_be_dropped_before_the_backward_pass_of_its_output(group: &ProcessGroup) {
    let (vs, model) = wrapped(group, false, DdpOptions::default());
    let data = batch(group, 0);
    let (xs, ys) = part(group, &data);
    let loss = loss(&model.f_forward_t(&xs, true).unwrap(), &ys);
    let expected = expected(&vs, false, &[&data]);
    drop(model);
    std::thread::spawn(move || loss.backward()).join().unwrap();
    assert_gradients(&vs, &expected);
}

#[run_by(on_ranks(1))]
fn no_sync_in_the_first_iteration_of_a_static_graph_is_refused(group: &ProcessGroup) {
    let options = DdpOptions { static_graph: true, ..Default::default() };
    let (_vs, model) = wrapped(group, false, options);
    let _accumulating = model.no_sync();
    let expected = "no_sync is in the first iteration of a static graph";
    expect_error_start(model.f_forward_t(&batch(group, 0).0, true), expected);
}

#[run_by(on_ranks(2))]
fn a_loss_without_a_backward_pass_is_this_ranks_own_fault(group: &ProcessGroup) {
    let (vs, model) = wrapped(group, false, DdpOptions::default());
    let data = batch(group, 0);
    let (xs, ys) = part(group, &data);
    let outputs = model.f_forward_t(&xs, true).unwrap();
    expect_error_start(model.backward(&outputs), "backward failed: grad can be implicitly created");
    // The group can still be used.
    model.backward(&loss(&outputs, &ys)).unwrap();
    assert_gradients(&vs, &expected(&vs, false, &[&data]));
}

#[run_by(on_ranks(2))]
fn parameters_that_have_changed_since_the_model_was_wrapped_are_refused(group: &ProcessGroup) {
    let mut vs = VarStore::new(Device::Cpu);
    let layer = nn::linear(vs.root(), 3, 2, Default::default());
    let _ = vs.variables()["bias"].set_requires_grad(false);
    let model = DistributedDataParallel::new(layer, &vs, group).unwrap();
    let pass = || model.f_forward_t(&Tensor::ones([4, 3], FLOAT_CPU), true);
    let _ = pass().unwrap();
    vs.unfreeze();
    expect_error(pass(), "the parameter bias is trained, but must be as it was when the model");
    let _ = no_grad(pass).unwrap();
    let _ = vs.variables()["bias"].set_requires_grad(false);
    let expected =
        "the parameter weight is no longer watched: it was converted to another kind, or";
    vs.double();
    expect_error(pass(), expected);
    vs.float();
    expect_error(pass(), expected);
}

#[run_by(on_ranks(2))]
fn a_pass_that_would_not_be_exchanged_is_refused(group: &ProcessGroup) {
    let layer = |path: &nn::Path<'_>| nn::conv2d(path, 3, 2, 2, Default::default());
    let images = Tensor::ones([2, 3, 4, 4], FLOAT_CPU);
    let (vs, model) = ddp(group, DdpOptions::default(), layer);
    let losses = [1, 2].map(|_| model.f_forward_t(&images, true).unwrap().sum(Kind::Float));
    model.backward(&losses[0]).unwrap();
    let again = model.backward(&losses[1]);
    expect_error(again, "backward is called after the exchange of all gradients");
    tch_parallel::nn::channels_last_weights(&vs).unwrap();
    expect_error(model.f_forward_t(&images, true), "is laid out anew in memory, but must be");

    let options = DdpOptions { static_graph: true, ..Default::default() };
    let (_vs, model) = ddp(group, options, layer);
    let hidden = model.forward(|layer| drop(layer.forward(&images)));
    expect_error(hidden, "the output of f is without a graph");
}

#[run_by(on_ranks(2))]
fn an_optimizer_in_the_backward_pass_would_step_before_the_exchange_and_is_refused(
    group: &ProcessGroup,
) {
    let vs = VarStore::new(Device::Cpu);
    let [first, second] = [(); 2].map(|()| nn::linear(vs.root(), 3, 2, Default::default()));
    let sgd = Arc::new(Mutex::new(sgd(&vs, 0.1)));
    let in_backward = || OptimizerInBackward::new(sgd.clone());
    let steps = in_backward().unwrap();
    // A graph that lives on keeps the hooks, which do nothing then.
    let _graph = vs.variables()["weight"].sum(Kind::Float);
    let expected = "vs is a store with an OptimizerInBackward, which steps before the exchange";
    expect_error(DistributedDataParallel::new(first, &vs, group), expected);
    drop(steps);
    let wrapped = DistributedDataParallel::new(second, &vs, group).unwrap();
    expect_error(in_backward(), "the optimizer is one of parameters in DistributedDataParallel");
    drop(wrapped);
    let _ = in_backward().unwrap();
}

#[run_by(on_ranks(2))]
fn evaluation_by_one_rank_alone_exchanges_nothing(group: &ProcessGroup) {
    let (_vs, model) = wrapped(group, false, DdpOptions::default());
    if group.rank() == 0 {
        assert!(!no_grad(|| model.forward_t(&batch(group, 0).0, false)).requires_grad());
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn one_loss_may_come_from_two_forward_passes_though_buffers_are_shared_between_them(
    group: &ProcessGroup,
) {
    let norm = |path: &nn::Path<'_>| nn::batch_norm1d(path / "norm", 4, Default::default());
    let (vs, model) = ddp(group, DdpOptions::default(), norm);
    let batch = Tensor::arange(24, FLOAT_CPU).reshape([6, 4]) + group.rank() as f64;
    let loss = || model.f_forward_t(&batch, true).unwrap().square().mean(Kind::Float);
    let losses = loss() + loss();
    model.sync_buffers().unwrap();
    model.backward(&losses).unwrap();
    assert_ne!(values(&vs.variables()["norm.weight"].grad()), [0.0; 4]);
}

// The course of running statistics in a training is compared with Python in `ddp_hooks`.
#[run_by(on_ranks(2))]
fn the_module_itself_has_rank_0s_running_statistics_once_synchronised(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let net = nn::seq_t()
        .add(nn::batch_norm1d(vs.root() / "norm", 4, Default::default()))
        .add(nn::linear(vs.root() / "last", 4, 2, Default::default()));
    let model = DistributedDataParallel::new(net, &vs, group).unwrap();
    // A batch that differs from rank to rank, so that the statistics differ too.
    let batch = Tensor::arange(24, FLOAT_CPU).reshape([6, 4]) + group.rank() as f64;
    model.backward(&model.f_forward_t(&batch, true).unwrap().mean(Kind::Float)).unwrap();
    let running_means = || checksums(group, &[vs.variables()["norm.running_mean"].copy()]);
    let before = running_means();
    assert_ne!(before[0], before[1]);
    model.sync_buffers().unwrap();
    assert_eq!(running_means(), [before[0]; 2]);
}
