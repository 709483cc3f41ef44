//! Delayed gradients, communication hooks with all their options, steps in the backward pass and what happens to buffers
//! equal Python's to the last bit, and combinations that are not supported are refused by name.

use crate::ddp_parity::with_batch_norm;
use crate::prelude::*;
use crate::weights::{Weights, backward, gradients, mean, model, own, with_hook};
use tch_parallel::distributed::hooks::*;

/// Trains with an optimizer outside the backward pass, unless `options` make one for within it.
fn train(
    group: &ProcessGroup,
    (name, steps): (&str, bool),
    options: impl FnOnce(&VarStore) -> DdpOptions,
    saved: &mut Saved,
) {
    let (vs, net) = with_batch_norm(group);
    let model = DistributedDataParallel::with_options(net, &vs, group, options(&vs)).unwrap();
    let mut optimizer = sgd(&vs, 0.5);
    for step in 0..5 {
        optimizer.zero_grad().unwrap();
        let xs = numbers(&[4, 6], 7 * step + group.rank() as i64);
        let output = model.f_forward_t(&xs, true).unwrap();
        model.backward(&output.cross_entropy_for_logits(&labels())).unwrap();
        let all = model.named_parameters().into_iter();
        saved.extend(all.map(|(key, it)| (format!("{name}.{step}.{key}.grad"), it.grad().copy())));
        if steps {
            optimizer.step().unwrap();
        }
        save(saved, &format!("{name}.{step}"), vs.variables());
    }
}

/// Trains with PowerSGD, which makes `numel` of 63 numbers in three of the five steps.
fn train_compressed(
    group: &ProcessGroup,
    name: &str,
    (hook, numel): (PowerSgd, u64),
    saved: &mut Saved,
) {
    train(group, (name, true), |_| hooked(hook.clone()), saved);
    let expected = CompressionStats {
        rate: 63.0 / numel as f64,
        numel_before_compression: 3 * 63,
        numel_after_compression: 3 * numel,
    };
    assert_eq!(hook.compression_stats(), expected);
}

fn power_sgd(group: &ProcessGroup, saved: &mut Saved) {
    // With this rate, vectors stay as they are, and so does the matrix of 3 x 5 at rank 3.
    let early = PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() };
    let early = PowerSgdOptions { min_compression_rate: 0.9, ..early };
    let of_rank =
        |matrix_approximation_rank| PowerSgdOptions { matrix_approximation_rank, ..early };
    let (matrices, vectors) = ((5 + 6) + (3 + 5), 5 + 5 + 5 + 3);
    for (name, options, numel) in [
        ("1", early, matrices + vectors),
        ("2", of_rank(2), 2 * matrices + vectors),
        ("3", of_rank(3), 3 * (5 + 6) + 3 * 5 + vectors),
        ("cold", PowerSgdOptions { warm_start: false, ..early }, matrices + vectors),
        ("unfed", PowerSgdOptions { use_error_feedback: false, ..early }, matrices + vectors),
        ("long", PowerSgdOptions { orthogonalization_epsilon: 0.1, ..early }, matrices + vectors),
    ] {
        let hook = PowerSgd::new(options).unwrap();
        train_compressed(group, &format!("power.{name}"), (hook, numel), saved);
    }
    let power = || PowerSgd::new(early).unwrap();
    train(group, ("power.buckets", true), |_| with_hook(power()), saved);
    let half = |_: &_| hooked(hooks::fp16_compress_wrapper(power()));
    train(group, ("power.half", true), half, saved);
    let batched = |rank| PowerSgd::batched(of_rank(rank)).unwrap();
    train(group, ("batched.buckets", true), |_| with_hook(batched(2)), saved);
    for rank in [1, 2, 4] {
        // A matrix of 8 rows and 8 columns.
        let compressed = (batched(rank), 16 * rank as u64);
        train_compressed(group, &format!("batched.{rank}"), compressed, saved);
    }
}

fn fused<R: UpdateRule + Send>(vs: &VarStore, rule: R) -> DdpOptions {
    let optimizer = Arc::new(Mutex::new(ParamGroupOptimizer::new(vs, rule).unwrap()));
    hooked(HookThenOptimizer::new(hooks::AllReduce, optimizer).unwrap())
}

/// Trains without the wrapper, each rank for itself.
fn in_backward<R: UpdateRule + Send>(group: &ProcessGroup, name: &str, rule: R) -> Saved {
    let ((vs, net), mut saved) = (with_batch_norm(group), Saved::new());
    let optimizer = Arc::new(Mutex::new(ParamGroupOptimizer::new(&vs, rule).unwrap()));
    let _in_backward = OptimizerInBackward::new(optimizer).unwrap();
    for step in 0..5 {
        let xs = numbers(&[4, 6], 7 * step + group.rank() as i64);
        net.forward_t(&xs, true).cross_entropy_for_logits(&labels()).backward();
        assert!(vs.trainable_variables().iter().all(|parameter| !parameter.grad().defined()));
        save(&mut saved, &format!("{name}.{step}"), vs.variables());
    }
    saved
}

fn delayed(names: &[&str], hooked: &str) -> DdpOptions {
    DdpOptions {
        delay_all_reduce_named_params: names.iter().map(|&name| name.into()).collect(),
        param_to_hook_all_reduce: Some(hooked.into()),
        ..Default::default()
    }
}

fn with_maxima(location: BufferCommHookLocation) -> DdpOptions {
    let hook = BufferCommHook::new("maxima", location, |group, buffers| {
        buffers.into_iter().map(|(_, it)| group.all_reduce_async(it, ReduceOp::Max)).collect()
    });
    DdpOptions { buffer_comm_hook: Some(hook), ..Default::default() }
}

#[run_by(after_python((2, SHARED_MEMORY), "ddp_hooks", ""))]
fn hooks_delayed_gradients_steps_in_the_backward_pass_and_buffers_equal_pythons(
    group: &ProcessGroup,
    python: Saved,
) {
    let mut saved = Saved::new();
    let half = || with_hook(hooks::Fp16Compress);
    // The gradients are three times 21 numbers.
    let channel = |bucket_size| hooked(Quantization::per_channel(bucket_size).unwrap());
    for (name, options) in [
        ("wrapper.half", hooked(hooks::fp16_compress_wrapper(hooks::AllReduce))),
        ("wrapper.brain", hooked(hooks::bf16_compress_wrapper(hooks::AllReduce))),
        ("half.view", DdpOptions { gradient_as_bucket_view: true, ..half() }),
        ("half.unused", DdpOptions { find_unused_parameters: true, ..half() }),
        ("half.static", DdpOptions { static_graph: true, ..half() }),
        ("delayed", delayed(&["2.weight", "2.bias"], "0.weight")),
        ("tensor", hooked(Quantization::per_tensor())),
        ("tensor.brain", hooked(hooks::bf16_compress_wrapper(Quantization::per_tensor()))),
        ("channel.16", channel(16)),
        ("channel.21", channel(21)),
        ("buffers.own", DdpOptions { broadcast_buffers: false, ..Default::default() }),
        ("buffers.False", with_maxima(BufferCommHookLocation::PreForward)),
        ("buffers.True", with_maxima(Default::default())),
    ] {
        train(group, (name, true), |_| options, &mut saved);
    }
    power_sgd(group, &mut saved);
    let rule = SgdOptions { lr: 0.5, momentum: 0.9, ..Default::default() };
    train(group, ("fused.sgd", false), |vs| fused(vs, rule), &mut saved);
    saved.extend(in_backward(group, "backward.sgd", rule));
    saved.extend(in_backward(group, "backward.adamw", AdamOptions::adamw()));
    let rule = AdamOptions { lr: 0.01, ..Default::default() };
    train(group, ("fused.adam", false), |vs| fused(vs, rule), &mut saved);
    let buckets = |vs: &_| DdpOptions { bucket_cap_mb: Some(1e-5), ..fused(vs, rule) };
    train(group, ("fused.buckets", false), buckets, &mut saved);
    expect_equal(saved, python);
}

#[run_by(on_ranks(2))]
fn delayed_gradients_stay_at_home_under_no_sync_and_may_be_cleared_after_the_forward_pass(
    group: &ProcessGroup,
) {
    let (vs, model) = model(group, delayed(&["vector"], "matrix"));
    {
        let _no_sync = model.no_sync();
        backward(&vs, &model, &own(group.rank(), 0)).unwrap();
        assert_eq!(gradients(&vs), own(group.rank(), 0));
    }
    let half = |rank| [0, 1].map(|part| (&own(rank, 0)[part] + &own(rank, 1)[part]) / 2.0);
    model.backward(&model.forward(|weights| weights.loss(&own(group.rank(), 1))).unwrap()).unwrap();
    assert_eq!(gradients(&vs), [0, 1].map(|part| &half(0)[part] + &half(1)[part]));
    for step in 2..4 {
        let loss = model.forward(|weights| weights.loss(&own(group.rank(), step))).unwrap();
        sgd(&vs, 0.0).zero_grad().unwrap();
        // `autograd.grad` leaves the exchange to the backward pass.
        Tensor::run_backward(&[&loss], &vs.trainable_variables(), true, false);
        model.backward(&loss).unwrap();
        assert_eq!(gradients(&vs), mean(step));
    }
    // Without the wrapper, and without the model, a rank may make passes of its own.
    let sum = || vs.trainable_variables().iter().map(|it| it.sum(Kind::Float)).sum::<Tensor>();
    if group.rank() == 0 {
        sum().backward();
        drop(model);
        sum().backward();
        assert_eq!(gradients(&vs)[1], &mean(3)[1] + 1.0 + 1.0);
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn a_delayed_gradient_that_comes_too_late_or_never_is_named(group: &ProcessGroup) {
    let (_vs, model) = model(group, delayed(&["matrix"], "vector"));
    let loss = |weights: &Weights| match group.rank() {
        0 => weights.loss(&own(0, 0)),
        _ => weights.vector.sum(Kind::Float),
    };
    let outcome = model.backward(&model.forward(loss).unwrap());
    expect_error(outcome, "delay_all_reduce_named_params: the gradient of matrix is not complete");
}

#[run_by(on_ranks(2))]
fn a_forward_pass_waits_for_buffers_after_a_plain_backward_pass(group: &ProcessGroup) {
    let ((vs, net), options) = (with_batch_norm(group), with_maxima(Default::default()));
    let model = DistributedDataParallel::with_options(net, &vs, group, options).unwrap();
    // So that nothing but the buffers is exchanged. Rank 0 comes first.
    let _no_sync = model.no_sync();
    std::thread::sleep(Duration::from_millis(300 * group.rank() as u64));
    let xs = numbers(&[4, 6], group.rank() as i64);
    let mean = vs.variables()["1.running_mean"].shallow_clone();
    let [_, seen] = [0, 1].map(|_| {
        let (seen, output) = model.forward(|net| (mean.copy(), net.forward_t(&xs, true))).unwrap();
        output.sum(Kind::Float).backward();
        seen
    });
    assert_eq!(seen, group.all_gather(&seen).unwrap()[1 - group.rank()]);
}

#[run_by(on_ranks(2))]
fn steps_in_the_backward_pass_read_gradients_in_the_layout_of_weights(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let net = nn::conv2d(vs.root(), 3, 4, 3, Default::default());
    tch_parallel::nn::channels_last_weights(&vs).unwrap();
    let options = fused(&vs, SgdOptions { lr: 0.5, ..Default::default() });
    let model = DistributedDataParallel::with_options(net, &vs, group, options).unwrap();
    let (weight, xs) = (&vs.variables()["weight"], numbers(&[2, 3, 5, 5], group.rank() as i64));
    let before = weight.copy();
    model.backward(&model.forward_t(&xs, true).square().mean(Kind::Float)).unwrap();
    assert_eq!(*weight, before - weight.grad() * 0.5);
}

#[run_by(on_ranks(2))]
fn an_optimizer_in_use_is_named_by_the_backward_pass(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let weights = Weights::new(&vs.root());
    let optimizer = Arc::new(Mutex::new(sgd(&vs, 0.1)));
    let hook = HookThenOptimizer::new(hooks::AllReduce, optimizer.clone()).unwrap();
    let _guard = optimizer.lock().unwrap();
    let locked = HookThenOptimizer::new(hooks::AllReduce, optimizer.clone());
    expect_error(locked, "the optimizer of hook_then_optimizer is");
    let model = DistributedDataParallel::with_options(weights, &vs, group, with_hook(hook));
    let outcome = backward(&vs, &model.unwrap(), &own(group.rank(), 0));
    expect_error(outcome, "the optimizer of hook_then_optimizer is");
}

#[run_by(on_ranks(1))]
fn what_does_not_go_together_is_refused(group: &ProcessGroup) {
    let wrapped = |options: DdpOptions| {
        let (vs, net) = with_batch_norm(group);
        DistributedDataParallel::with_options(net, &vs, group, options)
    };
    let late = || delayed(&["2.weight"], "0.weight");
    let ((vs, _net), after) = (with_batch_norm(group), BufferCommHookLocation::PostForward);
    let comm_hook = fused(&vs, SgdOptions::default()).comm_hook;
    expect_error_start(Quantization::per_channel(0), "bucket_size is 0");
    let nothing = PowerSgdOptions { matrix_approximation_rank: 0, ..Default::default() };
    expect_error_start(PowerSgd::new(nothing), "matrix_approximation_rank is 0");
    let early = PowerSgdOptions { start_power_sgd_iter: 1, ..Default::default() };
    let cold = PowerSgdOptions { warm_start: false, ..early };
    expect_error_start(PowerSgd::new(cold), "start_power_sgd_iter is 1");
    assert!(PowerSgd::new(PowerSgdOptions { use_error_feedback: false, ..cold }).is_ok());
    for (options, expected) in [
        (DdpOptions { param_to_hook_all_reduce: None, ..late() }, "without param_to_hook"),
        (delayed(&[], "0.weight"), "param_to_hook_all_reduce is set without"),
        (DdpOptions { comm_hook, ..late() }, "set with HookThenOptimizer"),
        (DdpOptions { find_unused_parameters: true, ..late() }, "set with find_unused_parameters"),
        (DdpOptions { static_graph: true, ..late() }, "set with static_graph"),
        (DdpOptions { sparse_gradients: ["2.weight".into()].into(), ..late() }, "in sparse_grad"),
        (
            delayed(&["3.weight"], "0.weight"),
            "delay_all_reduce_named_params is \"3.weight\", which is",
        ),
        (
            delayed(&["2.weight"], "3.weight"),
            "param_to_hook_all_reduce is \"3.weight\", which is not",
        ),
        (delayed(&["2.weight", "2.weight"], "0.weight"), "a list with \"2.weight\" twice"),
        (delayed(&["0.weight"], "0.weight"), "\"0.weight\", which is param_to_hook"),
        (DdpOptions { broadcast_buffers: false, ..with_maxima(after) }, "set with broadcast_b"),
        (DdpOptions { virtual_ranks: Some(2), ..with_maxima(after) }, "set with buffer_comm_hook"),
    ] {
        expect_error(wrapped(options), expected);
    }
    for (options, expected) in [
        (late(), "delay_all_reduce_named_params is"),
        (with_maxima(Default::default()), "buffer_comm_hook is"),
    ] {
        let model = wrapped(options).unwrap();
        let steps = || model.f_forward_t(&numbers(&[4, 6], 0), true).map(drop);
        expect_error_start(model.join(JoinOptions::default(), steps), expected);
    }
}
