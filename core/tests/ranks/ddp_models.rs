//! Which models DistributedDataParallel accepts, and what it does to their variables.

use crate::prelude::*;

fn layer(vs: &VarStore, outputs: i64) -> nn::Linear {
    nn::linear(&vs.root() / "fc", 4, outputs, Default::default())
}

/// Expects that a layer, which `change` has changed on rank 1, cannot be wrapped for a reason that begins so.
#[track_caller]
fn expect_refusal(group: &ProcessGroup, outputs: i64, change: fn(&mut VarStore), reason: &str) {
    let mut vs = VarStore::new(Device::Cpu);
    let layer = layer(&vs, outputs);
    if group.rank() == 1 {
        change(&mut vs);
    }
    let failed = "DistributedDataParallel::new failed: rank 1: its model is not rank 0's: ";
    let start = format!("rank {}: {failed}{reason}", group.rank());
    expect_error_start(DistributedDataParallel::new(layer, &vs, group), &start);
}

#[run_by(on_ranks(3))]
fn every_rank_is_told_how_parameters_and_options_differ(group: &ProcessGroup) {
    let outputs = if group.rank() == 1 { 5 } else { 2 };
    let different =
        "it has parameter fc.bias of Float [5], where rank 0 has parameter fc.bias of Float [2]";
    expect_refusal(group, outputs, |_| (), different);
    let more: fn(&mut VarStore) = |vs| drop(vs.root().zeros("extra", &[1]));
    expect_refusal(group, 2, more, "it has parameter extra of Float [1]");
    expect_refusal(group, 2, VarStore::double, "it has parameter fc.bias of Double [2]");
    let vs = VarStore::new(Device::Cpu);
    let options = DdpOptions { gradient_as_bucket_view: group.rank() == 1, ..Default::default() };
    let wrapped = DistributedDataParallel::with_options(layer(&vs, 2), &vs, group, options);
    expect_error(wrapped, "gradient_as_bucket_view: true");
}

#[run_by(on_ranks(1))]
fn nothing_to_train_is_refused(group: &ProcessGroup) {
    let mut vs = VarStore::new(Device::Cpu);
    let layer = layer(&vs, 2);
    vs.freeze();
    let wrapped = DistributedDataParallel::new(layer, &vs, group);
    expect_error(wrapped, "without a variable that requires a gradient");
}

#[run_by(on_ranks(2))]
fn every_rank_is_told_of_a_rank_that_cannot_build_its_model(group: &ProcessGroup) {
    for bad in 0..2 {
        let vs = VarStore::new(Device::Cpu);
        let bucket_cap_mb = (group.rank() == bad).then_some(0.0);
        let options = DdpOptions { bucket_cap_mb, ..Default::default() };
        let wrapped = DistributedDataParallel::with_options(layer(&vs, 2), &vs, group, options);
        let error = message(wrapped);
        let fault = "bucket_cap_mb is 0, but must be more than 0 MiB";
        let told = format!("rank {}: DistributedDataParallel::new failed: rank {bad}: ", 1 - bad);
        assert_eq!(error, if group.rank() == bad { fault.to_owned() } else { told + fault });
    }
}
