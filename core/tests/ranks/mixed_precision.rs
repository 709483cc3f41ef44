//! Parameters and gradients in 16 bits during a pass of DistributedDataParallel; `ddp_parity` compares with Python.

use crate::prelude::*;

type Model = DistributedDataParallel<nn::Linear>;

const BF16: MixedPrecision = MixedPrecision {
    param_dtype: Some(Kind::BFloat16),
    reduce_dtype: Some(Kind::Float),
    buffer_dtype: Some(Kind::Half),
};

/// A layer whose weights are all 0.5, and a buffer.
fn model(group: &ProcessGroup) -> (VarStore, Model) {
    let vs = VarStore::new(Device::Cpu);
    let _ = vs.root().zeros_no_train("table", &[2]);
    let layer = nn::linear(vs.root(), 3, 2, Default::default());
    vs.trainable_variables().iter_mut().for_each(|it| drop(no_grad(|| it.fill_(0.5))));
    let options = DdpOptions { mixed_precision: Some(BF16), ..Default::default() };
    let model = DistributedDataParallel::with_options(layer, &vs, group, options).unwrap();
    (vs, model)
}

fn kinds(vs: &VarStore) -> Vec<Kind> {
    vs.trainable_variables().iter().map(Tensor::kind).collect()
}

/// Whole numbers, which 16 bits hold exactly.
fn loss(model: &Model, number: i64) -> Tensor {
    model.f_forward_t(&Tensor::full([4, 3], number, FLOAT_CPU), true).unwrap().sum(Kind::Float)
}

#[run_by(on_ranks(2))]
fn only_a_pass_has_other_kinds_and_buffers_keep_theirs(group: &ProcessGroup) {
    let (vs, model) = model(group);
    assert_eq!(vs.variables()["table"].kind(), Kind::Half);
    let output = no_grad(|| model.f_forward_t(&Tensor::ones([4, 3], FLOAT_CPU), false));
    assert_eq!((output.unwrap().kind(), kinds(&vs)), (Kind::BFloat16, vec![Kind::Float; 2]));
    let loss = loss(&model, 1);
    assert_eq!(kinds(&vs), [Kind::BFloat16; 2]);
    model.backward(&loss).unwrap();
    assert_eq!(kinds(&vs), [Kind::Float; 2]);
}

#[run_by(on_ranks(2))]
fn an_evaluation_with_frozen_parameters_changes_neither_the_exchange_nor_gradients(
    group: &ProcessGroup,
) {
    let (mut vs, model) = model(group);
    let evaluate = || no_grad(|| model.f_forward_t(&Tensor::ones([4, 3], FLOAT_CPU), false));
    vs.freeze();
    let _ = evaluate().unwrap();
    vs.unfreeze();
    model.backward(&loss(&model, 3 + 2 * group.rank() as i64)).unwrap();
    // 4 rows, and a mean of 3 on rank 0 and 5 on rank 1.
    assert_eq!(vs.variables()["weight"].grad(), Tensor::full([2, 3], 16, FLOAT_CPU));
    let _ = vs.variables()["weight"].grad().fill_(1.001);
    let _ = evaluate().unwrap();
    assert_eq!(vs.variables()["weight"].grad(), Tensor::full([2, 3], 1.001, FLOAT_CPU));
}

#[run_by(on_ranks(2))]
fn the_gradients_of_every_step_are_means_and_accumulate_without_an_exchange(group: &ProcessGroup) {
    let (vs, model) = model(group);
    for step in 0..3 {
        sgd(&vs, 0.1).zero_grad().unwrap();
        let guard = model.no_sync();
        for number in [1, 2] {
            model.backward(&loss(&model, number)).unwrap();
            assert_eq!(kinds(&vs), [Kind::Float; 2]);
        }
        drop(guard);
        // 4 rows, and a mean of 3 on rank 0 and 5 on rank 1.
        model.backward(&loss(&model, 3 + 2 * group.rank() as i64)).unwrap();
        let weight = &vs.variables()["weight"];
        assert_eq!(weight.grad(), Tensor::full([2, 3], 4 * (1 + 2 + 4), FLOAT_CPU), "{step}");
        // What a checkpoint saves.
        let order = c10d_sys::bucket_order(&vs.trainable_variables()).unwrap();
        assert!(order.is_some_and(|order| order.len() == 2), "{step}");
    }
}

#[run_by(on_ranks(2))]
fn a_pass_that_is_given_up_spoils_nothing(group: &ProcessGroup) {
    let (vs, model) = model(group);
    (0..2).for_each(|_| drop(loss(&model, 100)));
    model.backward(&loss(&model, 1)).unwrap();
    assert_eq!(vs.variables()["weight"].grad(), Tensor::full([2, 3], 4, FLOAT_CPU));
    let given_up = loss(&model, 100);
    assert_eq!(kinds(&vs), [Kind::BFloat16; 2]);
    drop((given_up, model));
    assert_eq!(kinds(&vs), [Kind::Float; 2]);
    assert_eq!(vs.variables()["bias"], Tensor::full([2], 0.5, FLOAT_CPU));
}

#[run_by(on_ranks(2))]
fn a_step_without_an_exchange_and_an_evaluation_within_a_pass_are_kept(group: &ProcessGroup) {
    let (vs, model) = model(group);
    let guard = model.no_sync();
    model.backward(&loss(&model, 1)).unwrap();
    sgd(&vs, 0.125).step().unwrap();
    drop(guard);
    // 0.5 - 0.125 * 4
    let weight = &vs.variables()["weight"];
    assert_eq!(weight, &Tensor::zeros([2, 3], FLOAT_CPU));
    let loss = loss(&model, 1);
    let _ = no_grad(|| model.f_forward_t(&Tensor::ones([4, 3], FLOAT_CPU), false)).unwrap();
    assert_eq!(kinds(&vs), [Kind::BFloat16; 2]);
    model.backward(&loss).unwrap();
    assert_eq!(weight, &Tensor::zeros([2, 3], FLOAT_CPU));
}

#[run_by(on_ranks(1))]
fn what_it_cannot_be_combined_with_is_refused(group: &ProcessGroup) {
    let refused = |options: DdpOptions| {
        let vs = VarStore::new(Device::Cpu);
        let layer = nn::linear(vs.root(), 3, 2, Default::default());
        let options = DdpOptions { mixed_precision: Some(BF16), ..options };
        DistributedDataParallel::with_options(layer, &vs, group, options)
    };
    let with_hook = refused(hooked(hooks::AllReduce));
    expect_error(with_hook, "mixed_precision is set with comm_hook, but must be the only one");
    let unused = DdpOptions { find_unused_parameters: true, ..Default::default() };
    expect_error(refused(unused), "mixed_precision is set with find_unused_parameters");
}
