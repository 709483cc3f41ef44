//! Apex's wrapper: what it divides and when, what it leaves out, what it copies to all ranks.

use crate::prelude::*;

/// Two parameters whose gradients a test chooses. Its store also has a buffer.
type Model = ApexDistributedDataParallel<[Tensor; 2]>;

fn model(group: &ProcessGroup, kind: Kind, options: ApexOptions) -> Result<(VarStore, Model)> {
    let mut vs = VarStore::new(Device::Cpu);
    let rank = group.rank() as f64;
    let weights = [("first", 8), ("second", 4)]
        .map(|(name, size)| vs.root().var(name, &[size], nn::Init::Const(rank)));
    let _ = vs.root().zeros_no_train("buffer", &[1]).fill_(rank);
    vs.set_kind(kind);
    let model = ApexDistributedDataParallel::new(weights, &vs, group, options)?;
    Ok((vs, model))
}

/// A step in which every element of the gradients is `gradient`.
fn step(model: &Model, gradient: f64, uses_second: bool) -> Result<()> {
    let loss = model.forward(|[first, second]| {
        let sum = |parameter: &Tensor| (parameter * gradient).sum(Kind::Float);
        if uses_second { sum(first) + sum(second) } else { sum(first) }
    })?;
    model.backward(&loss)
}

/// The first element of each parameter's gradient; None for a parameter without one.
fn gradients(vs: &VarStore) -> Vec<Option<f64>> {
    let first = |gradient: Tensor| gradient.defined().then(|| gradient.double_value(&[0]));
    vs.trainable_variables().iter().map(|parameter| first(parameter.grad())).collect()
}

/// The exchanged gradients when rank 0's are `number` and rank 1's are 3 times that.
fn result(group: &ProcessGroup, number: f64, kind: Kind, options: ApexOptions) -> f64 {
    let (vs, model) = model(group, kind, options).unwrap();
    step(&model, number * (1 + 2 * group.rank()) as f64, true).unwrap();
    let [Some(first), Some(second)] = gradients(&vs)[..] else { panic!("a gradient is missing") };
    assert_eq!(first, second);
    first
}

#[run_by(on_ranks(2))]
fn gradients_are_averaged_or_summed_and_divided_before_and_after(group: &ProcessGroup) {
    for delay_allreduce in [false, true] {
        let result = |gradient_average, gradient_predivide_factor| {
            let given = ApexOptions { delay_allreduce, gradient_average, ..Default::default() };
            result(group, 1.0, Kind::Float, ApexOptions { gradient_predivide_factor, ..given })
        };
        assert_eq!(result(true, 1.0), 2.0);
        assert_eq!(result(true, 8.0), 2.0);
        assert_eq!(result(false, 1.0), 4.0);
        assert_eq!(result(false, 8.0), 0.5, "only the division before");
    }
}

#[run_by(on_ranks(2))]
fn sums_of_half_precision_are_kept_from_overflowing(group: &ProcessGroup) {
    let result = |options| result(group, 20_000.0, Kind::Half, options);
    let default = ApexOptions::default();
    assert_eq!(result(default), f64::INFINITY, "80,000 is too large");
    assert_eq!(result(ApexOptions { gradient_predivide_factor: 2.0, ..default }), 40_000.0);
    assert_eq!(result(ApexOptions { allreduce_always_fp32: true, ..default }), 40_000.0);
}

#[run_by(on_ranks(2))]
fn without_a_delay_gradients_travel_in_messages_and_all_must_come(group: &ProcessGroup) {
    let options = ApexOptions { message_size: 4, ..Default::default() };
    let (_vs, model) = model(group, Kind::Float, options).unwrap();
    (0..3).for_each(|_| step(&model, 1.0, true).unwrap());
    let data = model.logging_data().unwrap();
    let mut sizes = data.rebuilt_bucket_sizes;
    sizes.sort();
    assert_eq!((data.bucket_sizes, sizes), (vec![48], vec![16, 32]));
    step(&model, 1.0, false).unwrap();
    let error = step(&model, 1.0, true).unwrap_err();
    assert!(matches!(error, Error::UnusedParameters { .. }), "{error}");
}

#[run_by(on_ranks(2))]
fn with_a_delay_they_travel_at_once_and_what_has_none_is_left_out(group: &ProcessGroup) {
    let options = ApexOptions { message_size: 4, delay_allreduce: true, ..Default::default() };
    let (vs, model) = model(group, Kind::Float, options).unwrap();
    for _ in 0..3 {
        vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
        step(&model, (1 + 2 * group.rank()) as f64, false).unwrap();
        assert_eq!(gradients(&vs), [Some(2.0), None]);
    }
    assert_eq!(model.logging_data().unwrap().bucket_sizes, [48], "one bucket");
}

#[run_by(on_ranks(2))]
fn parameters_are_rank_0s_and_buffers_stay_each_ranks_own(group: &ProcessGroup) {
    let (vs, model) = model(group, Kind::Float, ApexOptions::default()).unwrap();
    model.module().iter().for_each(|it| assert_eq!(it.double_value(&[0]), 0.0));
    (0..2).for_each(|_| step(&model, 1.0, true).unwrap());
    assert_eq!(vs.variables()["buffer"].double_value(&[0]), group.rank() as f64);
}

#[run_by(on_ranks(2))]
fn ranks_must_have_the_same_options(group: &ProcessGroup) {
    let options = ApexOptions { gradient_average: group.rank() == 0, ..Default::default() };
    let error = message(model(group, Kind::Float, options));
    expect_texts(&error, &["rank 1: its model is not rank 0's", "average: false"]).unwrap();
}

#[run_by(on_ranks(1))]
fn options_that_cannot_work_are_refused(group: &ProcessGroup) {
    let message = |options| model(group, Kind::Float, options).err().unwrap().to_string();
    let default = ApexOptions::default();
    let expected = "message_size is 0, but must be at least 1";
    assert_eq!(message(ApexOptions { message_size: 0, ..default }), expected);
    for gradient_predivide_factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = message(ApexOptions { gradient_predivide_factor, ..default });
        assert!(error.ends_with("but must be more than 0"), "{error}");
    }
}
