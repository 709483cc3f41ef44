//! Ranks of one host use shared memory, if all of them can.

use crate::common::{processes_with, rank_under, with_variable};
use crate::prelude::*;

/// What the other ranks are told of one that does not offer shared memory.
const NOT_OFFERED: &str = "rank 1 of the group does not offer it: it runs Python, has switched it off, or itself \
                           reports why it cannot";

/// Sums over the ranks, and returns this rank and how it was done.
fn transport() -> (usize, String) {
    let group = common::join();
    let mut ones = Tensor::ones([100_000], (Kind::Float, group.device()));
    group.all_reduce(&mut ones, ReduceOp::Sum).unwrap();
    assert_eq!(ones.double_value(&[99_999]), group.world_size() as f64);
    group.barrier().unwrap();
    (group.rank(), group.transport().to_string())
}

#[run_by(on_ranks(2))]
fn ranks_of_one_host_use_shared_memory(group: &ProcessGroup) {
    assert_eq!(group.transport(), Transport::SharedMemory);
    assert!(format!("{group:?}").contains("transport: SharedMemory"), "{group:?}");
    assert_eq!(group.new_group(&[0, 1]).unwrap().unwrap().transport(), Transport::SharedMemory);
    group.barrier().unwrap();
}

#[run_by(processes_with(3, rank_under(1, "env TCH_PARALLEL_SHARED_MEMORY=0")))]
fn if_one_rank_does_not_want_it_all_use_sockets() {
    let (rank, transport) = transport();
    let reason = if rank == 1 { "it is switched off" } else { NOT_OFFERED };
    assert_eq!(transport, format!("sockets ({reason})"));
}

#[run_by(processes_with(2, with_variable("TORCH_DISTRIBUTED_DEBUG", "DETAIL")))]
fn ranks_that_compare_their_calls_over_gloo_use_it_too() {
    assert_eq!(transport().1, "shared memory");
}

// As in a container, the first process of a new namespace sees none of the others. Only root may make one.
#[run_by(processes_with(2, rank_under(1, "unshare --pid --fork --kill-child")))]
fn a_rank_in_another_container_makes_all_use_sockets() {
    let (rank, transport) = transport();
    let reason = format!("rank {} is on another host, or in another container", 1 - rank);
    assert_eq!(transport, format!("sockets ({reason})"));
}

#[run_by(processes_with(2, rank_under(1, "prlimit --as=64000000000")))]
fn a_rank_with_limited_memory_makes_all_use_sockets() {
    let (rank, transport) = transport();
    let reason = if rank == 1 { "the address space is limited (ulimit -v)" } else { NOT_OFFERED };
    assert_eq!(transport, format!("sockets ({reason})"));
}

// Like another user, root without capabilities cannot look into a process that has some.
#[run_by(processes_with(2, rank_under(1, "setpriv --bounding-set=-all --inh-caps=-all")))]
fn a_rank_that_cannot_map_the_others_files_makes_all_use_sockets() {
    let (rank, transport) = transport();
    // Rank 0 learns why, or finds that rank 1 has already given up.
    assert!(transport.starts_with("sockets ("), "{transport}");
    assert!(rank == 0 || transport.ends_with(": Permission denied)"), "{transport}");
}

#[test]
fn one_rank_alone_needs_no_other() {
    let group = common::join();
    assert_eq!(group.transport(), Transport::Sockets { reason: "there is one rank".into() });
    let tensor = group.allocate_tensor(&[2, 3], Kind::Double).unwrap();
    assert_eq!((tensor.size(), tensor.kind()), (vec![2, 3], Kind::Double));
}

#[run_by(processes_with(3, with_variable("TORCH_GLOO_LAZY_INIT", "1")))]
fn ranks_that_gloo_connects_late_meet_all_the_same() {
    let group = common::join();
    // All have come, or shared memory would be missing.
    assert_eq!(group.transport(), Transport::SharedMemory);
    // Through gloo.
    let gathered = group.all_gather(&Tensor::from(group.rank() as i64)).unwrap();
    assert_eq!(Vec::<i64>::try_from(Tensor::stack(&gathered, 0)).unwrap(), [0, 1, 2]);
}
