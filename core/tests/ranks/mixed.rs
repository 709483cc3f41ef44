//! Ranks beside those that run Python, which answer only what PyTorch has.

use crate::prelude::*;

#[run_by(common::beside_python("bystander", 1))]
fn calls_that_python_cannot_answer_say_so_at_once() {
    let group = common::join();
    let mut vs = VarStore::new(Device::Cpu);
    let _layer = nn::linear(vs.root(), 2, 1, Default::default());
    let mut optimizer = Sgd::new(&vs, SgdOptions::default()).unwrap();
    let mut training = training(&mut vs, &mut optimizer);
    let calls = [
        training.save("never.safetensors", &0, &group),
        training.load::<i64>("never.safetensors", &group).map(drop),
        group.all_gather_object(&0).map(drop),
        group.broadcast_object(&mut 0, 0),
        group.gather_object(&0, 0).map(drop),
        group.scatter_object(Some(&[0, 1]), 0).map(drop),
        group.new_group(&[0, 1]).map(drop),
    ];
    calls.into_iter().for_each(|it| expect_error(it, "is called with rank 1, which runs Python"));
    let consolidated = ZeroRedundancyOptimizer::new(optimizer, &group).consolidate_state_dict(0);
    expect_error(consolidated, "rank 1, which runs Python");
    assert!(group.new_group(&[0]).unwrap().is_some());
    group.barrier().unwrap();
}

#[run_by(common::beside_python("zero_redundancy", 1))]
fn a_sharded_optimizer_steps_with_pythons() {
    let group = common::join();
    let vs = VarStore::new(Device::Cpu);
    let zeros = |(index, size): (usize, &[i64])| vs.root().zeros(&format!("{index}"), size);
    let sizes: [&[i64]; 4] = [&[2], &[2, 3, 2, 2], &[3], &[4]];
    let parameters: Vec<_> = sizes.into_iter().enumerate().map(zeros).collect();
    channels_last_weights(&vs).unwrap();
    let sgd = Sgd::new(&vs, SgdOptions { lr: 0.5, ..Default::default() }).unwrap();
    let mut optimizer = ZeroRedundancyOptimizer::new(sgd, &group);
    for step in [1.0, 2.0] {
        optimizer.zero_grad().unwrap();
        for (parameter, slope) in parameters.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            (parameter * slopes(parameter) * slope * step).sum(Kind::Float).backward();
        }
        optimizer.step().unwrap();
    }
    for (parameter, slope) in parameters.iter().zip([1.0, 2.0, 3.0, 4.0]) {
        assert_eq!(*parameter, slopes(parameter) * slope * -1.5);
    }
}

/// Other numbers for each element.
fn slopes(parameter: &Tensor) -> Tensor {
    Tensor::arange(parameter.numel() as i64, FLOAT_CPU).view(&parameter.size()[..])
}

#[run_by(common::beside_python("bystander", 0))]
fn a_rank_goes_on_when_python_has_ended_and_the_store_with_it() {
    let store = Store::from_env(common::TIMEOUT).unwrap();
    let group = ProcessGroup::with_store(&store, 1, 2, common::options()).unwrap();
    let vs = VarStore::new(Device::Cpu);
    let _layer = nn::linear(vs.root(), 2, 1, Default::default());
    group.barrier().unwrap();
    while store.check("any").is_ok() {}
    checkpoint::save("model.safetensors", &vs, &group).unwrap();
}
