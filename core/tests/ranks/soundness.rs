//! Safe code of a rank neither reaches undefined behaviour nor waits forever.
//!
//! The tests are the ways that were tried; in `collectives`, memory is given back during an exchange.
//! `data_parallel_misuse` does the same for DataParallel.

use crate::{prelude::*, weights::*};
use std::thread;

/// The loss of a forward pass whose wrapper does not see it.
fn hidden_loss(model: &Model, gradients: &[Tensor; 2]) -> Tensor {
    let mut hidden = None;
    let pass = model.forward(|weights| -> Option<Tensor> {
        hidden = Some(weights.loss(gradients));
        None
    });
    assert!(pass.unwrap().is_none());
    hidden.unwrap()
}

#[run_by(on_ranks(2))]
fn a_model_may_be_dropped_during_the_backward_pass_of_an_output_unseen_by_it(group: &ProcessGroup) {
    for step in 0..300 {
        let (vs, model) = model(group, two_buckets());
        let loss = hidden_loss(&model, &own(group.rank(), step));
        let pass = thread::spawn(move || loss.f_backward().map(drop));
        drop(model);
        pass.join().unwrap().unwrap();
        assert_eq!(gradients(&vs), mean(step));
    }
}

#[run_by(on_ranks(2))]
fn a_model_may_be_dropped_before_the_backward_pass_of_an_output_unseen_by_it(group: &ProcessGroup) {
    for options in [DdpOptions { gradient_as_bucket_view: true, ..two_buckets() }, two_buckets()] {
        let (vs, model) = model(group, options);
        let loss = hidden_loss(&model, &own(group.rank(), 0));
        drop(model);
        loss.f_backward().unwrap();
        assert_eq!(gradients(&vs), mean(0));
    }
}

/// Where a hook finds its own model.
type Place = Arc<Mutex<Option<Model>>>;

fn reachable(
    group: &ProcessGroup,
    start: impl Fn(&Place, &ProcessGroup, &mut GradBucket<'_>) -> Result<Finish> + Send + 'static,
) -> (VarStore, Tensor) {
    let place = Place::default();
    let found = Arc::clone(&place);
    let hook = hooks::from_fn("uses its model", move |group, bucket| start(&found, group, bucket));
    let (vs, model) = model(group, with_hook(hook));
    let loss = model.forward(|weights| weights.loss(&own(group.rank(), 0))).unwrap();
    *place.lock().unwrap() = Some(model);
    (vs, loss)
}

#[run_by(on_ranks(2))]
fn a_hook_may_drop_its_model_before_and_after_the_exchange(group: &ProcessGroup) {
    let (vs, loss) = reachable(group, |place, group, bucket| {
        drop(place.lock().unwrap().take());
        hooks::AllReduce.start(group, bucket)
    });
    loss.f_backward().unwrap();
    assert_eq!(gradients(&vs), mean(0));
    let (vs, loss) = reachable(group, |place, group, bucket| {
        let (place, finish) = (Arc::clone(place), hooks::AllReduce.start(group, bucket)?);
        Ok(Box::new(move || {
            drop(place.lock().unwrap().take());
            finish()
        }))
    });
    loss.f_backward().unwrap();
    assert_eq!(gradients(&vs), mean(0));
}

/// Expects a hook that does this with its model to get an error.
fn expect_refusal(group: &ProcessGroup, act: impl Fn(&Model) -> Result<()> + Send + 'static) {
    let (errors, error) = mpsc::channel();
    let (_vs, loss) = reachable(group, move |place, group, bucket| {
        errors.send(message(act(place.lock().unwrap().as_ref().unwrap()))).unwrap();
        hooks::AllReduce.start(group, bucket)
    });
    // What the model was asked to do failed, so this pass may fail as well.
    let _ = loss.f_backward();
    let error = error.try_recv().unwrap();
    assert!(error.contains("its communication hook was running"), "rank {}: {error}", group.rank());
}

#[run_by(on_ranks(1))]
fn a_pass_within_a_hook_or_on_another_thread_that_it_waits_for_is_refused(group: &ProcessGroup) {
    let loss_of = |model: &Model| tch::with_grad(|| model.module().loss(&own(0, 1)));
    expect_refusal(group, |model| {
        tch::with_grad(|| model.forward(|weights| weights.loss(&own(0, 1))).map(drop))
    });
    expect_refusal(group, move |model| model.backward(&loss_of(model)));
    expect_refusal(group, move |model| {
        let loss = loss_of(model);
        thread::spawn(move || loss.f_backward().map(drop).map_err(Error::from)).join().unwrap()
    });
}

#[run_by(on_ranks(2))]
fn tensors_of_a_bucket_outlive_the_model_and_the_group(group: &ProcessGroup) {
    let (kept, tensors) = mpsc::channel();
    let hook = hooks::from_fn("keeps", move |group, bucket| {
        kept.send((bucket.buffer()?, bucket.gradients()?, bucket.parameters()?)).unwrap();
        hooks::AllReduce.start(group, bucket)
    });
    let own = own(group.rank(), 0);
    let member = group.new_group(&[0, 1]).unwrap().unwrap();
    let (vs, model) = model(&member, with_hook(hook));
    backward(&vs, &model, &own).unwrap();
    drop((model, vs, member));
    let (buffer, views, parameters) = tensors.recv().unwrap();
    let flat: Vec<_> = views.iter().map(|view| view.flatten(0, -1)).collect();
    assert_eq!(buffer, Tensor::cat(&flat, 0));
    let [matrix, vector] = mean(0);
    for (parameter, view) in parameters.iter().zip(&views) {
        assert_eq!(view, if parameter.dim() == 2 { &matrix } else { &vector });
    }
}

#[run_by(on_ranks(2))]
fn a_model_may_be_wrapped_again_while_an_old_graph_still_exists(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let old = hidden_loss(&model, &own(group.rank(), 0));
    drop(model);
    let weights = Weights::new(&vs.root());
    let again = DistributedDataParallel::with_options(weights, &vs, group, two_buckets()).unwrap();
    for step in 1..4 {
        backward(&vs, &again, &own(group.rank(), step)).unwrap();
        assert_eq!(gradients(&vs), mean(step));
    }
    drop((old, again));
}

#[run_by(on_ranks(2))]
fn without_its_wrapper_a_model_exchanges_nothing(group: &ProcessGroup) {
    let (vs, wrapped) = model(group, two_buckets());
    backward(&vs, &wrapped, &own(group.rank(), 0)).unwrap();
    drop(wrapped);
    let own = own(group.rank(), 1);
    vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
    Weights::new(&vs.root()).loss(&own).f_backward().unwrap();
    assert_eq!(gradients(&vs), own);
}

#[run_by(on_ranks(1))]
fn a_dropped_model_frees_its_hook(group: &ProcessGroup) {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let hook = hooks::from_fn("counted", move |group, bucket| {
        let _ = &held;
        hooks::AllReduce.start(group, bucket)
    });
    let (vs, model) = model(group, with_hook(hook));
    backward(&vs, &model, &own(0, 0)).unwrap();
    let kept = hidden_loss(&model, &own(0, 1));
    drop(model);
    assert_eq!(Arc::strong_count(&alive), 2, "a graph may still call the hook");
    drop(kept);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[run_by(on_ranks(2))]
fn after_a_panic_in_a_forward_pass_the_model_goes_on(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    for step in 0..3 {
        assert!(panics(|| model.forward(|_| -> Tensor { panic!("in the forward pass") })));
        backward(&vs, &model, &own(group.rank(), step)).unwrap();
        assert_eq!(gradients(&vs), mean(step));
    }
}

#[run_by(on_ranks(2))]
fn a_forward_pass_may_contain_another(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let own = own(group.rank(), 0);
    let output = model.forward(|_| model.forward(|weights| weights.loss(&own)).unwrap()).unwrap();
    model.backward(&output).unwrap();
    assert_eq!(gradients(&vs), mean(0));
}

#[run_by(on_ranks(1))]
fn after_a_panic_in_a_join_the_model_can_join_again(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let broken = || -> Result<()> { panic!("in the join") };
    assert!(panics(|| model.join(JoinOptions::default(), broken)));
    model.join(JoinOptions::default(), || backward(&vs, &model, &own(0, 0))).unwrap();
}

#[run_by(on_ranks(2))]
fn a_group_may_be_dropped_before_the_works_of_its_exchanges(group: &ProcessGroup) {
    for _ in 0..20 {
        let member = group.new_group(&[0, 1]).unwrap().unwrap();
        let ones = Tensor::ones([1 << 16], FLOAT_CPU);
        let pending = member.all_reduce_async(ones, ReduceOp::Sum).unwrap();
        drop(member);
        assert_eq!(pending.wait().unwrap().double_value(&[0]), 2.0);
    }
}

#[run_by(on_ranks(2))]
fn a_tensor_in_shared_memory_outlives_its_group(group: &ProcessGroup) {
    for _ in 0..20 {
        let member = group.new_group(&[0, 1]).unwrap().unwrap();
        let mut tensor = member.allocate_tensor(&[1 << 16], Kind::Float).unwrap();
        let _ = tensor.fill_(1.0);
        member.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        drop(member);
        assert_eq!((&tensor + &tensor).min().double_value(&[]), 4.0);
        let _ = tensor.fill_(3.0);
        assert_eq!(tensor.max().double_value(&[]), 3.0);
    }
}
