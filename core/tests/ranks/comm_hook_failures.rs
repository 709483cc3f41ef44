//! Communication hooks that are refused or fail: every rank ends with an error that says why.

use crate::prelude::*;
use crate::weights::{Weights, backward, model, own, with_hook};

#[run_by(on_ranks(2))]
fn ranks_with_different_hooks_are_told(group: &ProcessGroup) {
    let options = match group.rank() {
        0 => with_hook(hooks::AllReduce),
        _ => with_hook(hooks::Bf16Compress),
    };
    let vs = VarStore::new(Device::Cpu);
    let weight = vs.root().zeros("weight", &[1]);
    let error = message(DistributedDataParallel::with_options(weight, &vs, group, options));
    let [theirs, ours] = ["bf16_compress_hook", "allreduce_hook"]
        .map(|hook| error.find(&format!("comm_hook: Some({hook})")).unwrap());
    assert!(error.contains("rank 1: its model is not rank 0's") && theirs < ours, "{error}");
}

#[derive(Clone, Copy, PartialEq)]
enum When {
    Start,
    Finish,
}

/// Expects the same failure in rank 1's error and in rank 0's when the hook fails on rank 1, in the second step's
/// second bucket, as `fail` does.
#[track_caller]
fn expect(group: &ProcessGroup, fail: fn() -> Result<Tensor>, when: When, what: &str) {
    let fails = group.rank() == 1;
    let hook = hooks::from_fn("failing", move |group, bucket| {
        let now = fails && bucket.index() == 1;
        if now && when == When::Start {
            let _ = fail()?;
        }
        let sum = group.all_reduce_async(bucket.buffer()?, ReduceOp::Sum)?;
        Ok(Box::new(move || match sum.wait() {
            Ok(_) if now => fail(),
            sum => sum,
        }))
    });
    let (vs, model) = model(group, with_hook(hook));
    // One bucket, so nothing fails.
    backward(&vs, &model, &own(group.rank(), 0)).unwrap();
    let message = match backward(&vs, &model, &own(group.rank(), 1)) {
        Err(error @ Error::Collective { .. }) => error.to_string(),
        // If this rank had already received all it needed, it notices in the next step.
        Ok(()) => backward(&vs, &model, &own(group.rank(), 2)).unwrap_err().to_string(),
        Err(other) => panic!("{other}"),
    };
    let failure = format!("communication hook failing: {what}");
    match group.rank() {
        1 => assert_eq!(message, format!("rank 1: backward failed: {failure}")),
        _ => assert!(message.contains(&format!("rank 1 reports: {failure}")), "{message}"),
    }
}

const REFUSAL: &str = "the gradient is too long, but must be shorter";

fn refuses() -> Result<Tensor> {
    Err(Error::argument("the gradient", "too long", "shorter"))
}

macro_rules! failures {
    ($(fn $test:ident() = ($when:ident, $fail:expr, $what:expr);)*) => {$(
        #[run_by(on_ranks(2))]
        fn $test(group: &ProcessGroup) {
            expect(group, $fail, When::$when, $what);
        }
    )*};
}

failures! {
    fn an_error_at_the_start_of_an_exchange_reaches_every_rank() = (Start, refuses, REFUSAL);
    fn an_error_at_the_end_of_an_exchange_reaches_every_rank() = (Finish, refuses, REFUSAL);
    fn a_panic_at_the_start_of_an_exchange_is_an_error() =
        (Start, || panic!("this cannot be"), "this cannot be");
    fn a_panic_at_the_end_of_an_exchange_is_an_error() =
        (Finish, || panic!("this cannot be"), "this cannot be");
    fn what_libtorch_refuses_is_said_without_its_backtrace() = (
        Finish, || Ok(Tensor::zeros([2], FLOAT_CPU) + Tensor::zeros([3], FLOAT_CPU)),
        "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
    fn a_result_of_another_shape_is_refused() = (
        Finish, || Ok(Tensor::zeros([3], DOUBLE_CPU)),
        "its result for bucket 1 is Double [3] on Cpu, but must be Float [384] on Cpu, as the bucket");
    fn an_undefined_result_is_refused() = (
        Finish, || Ok(Tensor::new()),
        "its result for bucket 1 is an undefined tensor, but must be Float [384] on Cpu, as the bucket");
}

#[run_by(on_ranks(1))]
fn a_plain_backward_panics_with_the_hooks_error(group: &ProcessGroup) {
    let hook = |_: &ProcessGroup, _: &mut GradBucket<'_>| refuses().map(|_| unreachable!());
    let (_vs, model) = model(group, with_hook(hooks::from_fn("refusing", hook)));
    let loss = model.forward(|weights| weights.loss(&own(0, 0))).unwrap();
    expect_error(loss.f_backward(), "communication hook refusing: the gradient is too long");
}

#[run_by(on_ranks(2))]
fn a_backward_pass_within_a_hook_is_refused(group: &ProcessGroup) {
    let held = Arc::new(Mutex::new(None::<Tensor>));
    let loss = Arc::clone(&held);
    let hook = hooks::from_fn("nested", move |group, bucket| {
        let taken = loss.lock().unwrap().take();
        if let Some(loss) = taken {
            let refused = |error| Error::argument("the inner backward pass", error, "possible");
            loss.f_backward().map_err(refused)?;
        }
        hooks::AllReduce.start(group, bucket)
    });
    let (_vs, model) = model(group, with_hook(hook));
    let loss = |weights: &Weights| weights.loss(&own(group.rank(), 0));
    let output = model.forward(loss).unwrap();
    // Rank 1 makes no step within the join, so no backward pass of its own calls the hook there.
    if group.rank() == 1 {
        *held.lock().unwrap() = Some(output);
    }
    let joined: Result<()> = model.join(JoinOptions::default(), || match group.rank() {
        0 => model.backward(&model.forward(loss)?),
        _ => Ok(()),
    });
    expect_error(joined, "a model can have one backward pass at a time");
}
