//! What operations refuse, and what they leave as it is.

use super::*;
use crate::{GlooAddress, GlooOptions, Store};

fn alone() -> ProcessGroup {
    let (address, timeout) = (GlooAddress::Host("127.0.0.1".into()), Duration::from_secs(10));
    let options =
        GlooOptions { address, shared_memory: true, name: 0, timeout, join_timeout: timeout };
    ProcessGroup::gloo(&Store::hash().unwrap(), 0, 1, &options).unwrap()
}

fn table() -> Tensor {
    Tensor::arange(6, (tch::Kind::Float, tch::Device::Cpu)).reshape([3, 2])
}

/// Every operation, with `view` in the place of one of its tensors.
fn with_each(group: &ProcessGroup, view: &Tensor) -> Vec<Result<Work, Error>> {
    let call = Call::default();
    let same = || view.contiguous();
    let views = [view.shallow_clone()];
    vec![
        group.all_reduce(view, ReduceOp::Sum, call),
        group.broadcast(view, 0, call),
        group.reduce(view, 0, ReduceOp::Sum, call),
        group.all_gather(&[same()], view, call),
        group.all_gather(&views, &same(), call),
        group.all_gather_into_tensor(view, &same(), call),
        group.gather(&[same()], view, 0, call),
        group.scatter(&same(), &views, 0, call),
        group.reduce_scatter(view, &[same()], ReduceOp::Sum, call),
        group.reduce_scatter_tensor(&same(), view, ReduceOp::Sum, call),
        group.all_to_all(&[same()], &views, call),
        group.all_to_all_single(view, &same(), &[], &[], call),
        group.send(view, 0, 0),
        group.recv(view, 0, 0),
        group.recv_any(view, 0),
        group
            .batch(&[Message { tensor: view, peer: 0, tag: 0, is_send: true }])
            .map(|mut works| works.remove(0)),
    ]
}

#[test]
fn tensors_with_gaps_with_numbers_in_one_place_or_only_marked_as_negated_are_refused() {
    let (group, table) = (alone(), table());
    let views = [table.select(1, 0), table.slice(1, 0, 1, 1).expand([3, 1000], false)];
    for started in views.iter().flat_map(|view| with_each(&group, view)) {
        assert_eq!(started.unwrap_err().message(), "Tensors must be contiguous");
    }
    // Transposed: the elements are in another order, but without gaps.
    group.all_reduce(&table.tr(), ReduceOp::Sum, Call::default()).unwrap().wait(None).unwrap();
    let negated = table.internal_neg_view();
    let error = group.all_reduce(&negated, ReduceOp::Sum, Call::default()).unwrap_err();
    assert_eq!(error.message(), "Conjugate and negative views must be resolved");
}

#[test]
fn a_tensor_that_was_exchanged_is_still_charged_to_its_device() {
    let tensor = Tensor::ones([4], tch::kind::FLOAT_CPU);
    let device = crate::memory::cpu_device_of(&tensor);
    alone().all_reduce(&tensor, ReduceOp::Sum, Call::default()).unwrap().wait(None).unwrap();
    assert!(device.is_some());
    assert_eq!(crate::memory::cpu_device_of(&tensor), device);
}

#[test]
fn elements_that_an_operation_may_still_write_are_not_given_out() {
    let group = alone();
    let mut tensor = Tensor::ones([4], tch::kind::FLOAT_CPU);
    assert!(crate::tensor::get_mut(&mut tensor).is_some());
    let call = Call { is_async: true, ..Call::default() };
    let work = group.all_reduce(&tensor, ReduceOp::Sum, call).unwrap();
    assert!(crate::tensor::get_mut(&mut tensor).is_none());
    work.wait(None).unwrap();
}
