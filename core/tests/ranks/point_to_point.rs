//! Messages between two ranks.

use crate::prelude::*;
use nix::{sys::signal::Signal, sys::signal::kill, sys::signal::raise, unistd::Pid};

fn message(number: usize) -> Tensor {
    Tensor::from_slice(&[number as f64])
}

fn number(tensor: &Tensor) -> f64 {
    tensor.double_value(&[0])
}

#[run_by(on_ranks(2))]
fn a_message_is_received_with_the_tag_with_which_it_was_sent(group: &ProcessGroup) {
    let tags = [1, 2, 0];
    if group.rank() == 0 {
        for sent in tags.map(|tag| group.with_tag(tag).isend(message(tag as usize), 1).unwrap()) {
            let _ = sent.wait().unwrap();
        }
        return;
    }
    for tag in [0, 1, 2] {
        let mut received = message(9);
        group.with_tag(tag).recv(&mut received, 0).unwrap();
        assert_eq!(number(&received), f64::from(tag));
    }
}

#[run_by(on_ranks(2))]
fn each_message_of_a_batch_may_have_a_tag(group: &ProcessGroup) {
    let other = 1 - group.rank();
    let send = |tag: i32| P2pOp::isend(message(tag as usize), other).with_tag(tag);
    let receive = |tag| P2pOp::irecv(message(9), other).with_tag(tag);
    // The group's, for a message without one.
    let batch = vec![P2pOp::isend(message(3), other), send(2), receive(2), receive(3)];
    let pending = group.with_tag(3).batch_isend_irecv(batch).unwrap();
    let ended = pending.into_iter().map(|it| number(&it.wait().unwrap()));
    assert_eq!(ended.collect::<Vec<_>>(), [3.0, 2.0, 2.0, 3.0]);
    let negative = group.batch_isend_irecv(vec![send(1).with_tag(-1)]);
    expect_error_start(negative, "the tag is -1, but must be 0 or more");
}

#[run_by(on_ranks(3))]
fn a_message_from_any_rank_comes_with_that_rank(group: &ProcessGroup) {
    if group.rank() > 0 {
        return group.send(&message(group.rank()), 0).unwrap();
    }
    let mut received = message(9);
    let first = group.recv_any(&mut received).unwrap();
    assert_eq!(number(&received), first as f64);
    let (received, second) = group.irecv_any(message(9)).unwrap().wait().unwrap();
    assert_eq!(number(&received), second as f64);
    assert_eq!(first + second, 3);
}

#[run_by(on_ranks(3))]
fn a_batch_of_messages_goes_round_whatever_their_order(group: &ProcessGroup) {
    let (rank, ranks) = (group.rank(), group.world_size());
    let previous = (rank + ranks - 1) % ranks;
    let receive = P2pOp::irecv(message(9), previous);
    let send = P2pOp::isend(message(rank), (rank + 1) % ranks);
    let mut pending = group.batch_isend_irecv(vec![receive, send]).unwrap();
    let sent = pending.pop().unwrap();
    assert_eq!(number(&pending.pop().unwrap().wait().unwrap()), previous as f64);
    assert_eq!(number(&sent.wait().unwrap()), rank as f64);
    let to_itself = vec![P2pOp::isend(message(9), rank)];
    let expected = format!("dst is rank {rank}, this rank itself");
    expect_error_start(group.batch_isend_irecv(to_itself), &expected);
}

#[run_by(on_ranks(2))]
fn a_message_that_does_not_come_in_time_is_an_error(group: &ProcessGroup) {
    group.barrier().unwrap();
    let done = group.new_group(&[0, 1]).unwrap().unwrap();
    if group.rank() == 0 {
        let limited = group.with_timeout(Duration::from_millis(300));
        expect_error(limited.recv(&mut message(9), 1), "rank 1 runs");
    }
    done.barrier().unwrap();
}

fn through_sockets(rank: usize, mut command: Command) -> Command {
    command.env("TCH_PARALLEL_SHARED_MEMORY", "0");
    common::mortal(1)(rank, command)
}

/// Rank 0's operation is under way when rank 1, which receives a part of it, is killed.
fn dies_in_the_middle(start: fn(&ProcessGroup, Tensor) -> Pending<Tensor>) {
    let group = common::join();
    let own = Tensor::from(i64::from(std::process::id()));
    let rank_1 = Pid::from_raw(group.all_gather(&own).unwrap()[1].int64_value(&[]) as i32);
    // More than the sockets hold.
    let tensor = Tensor::full([256 << 20], 1 - group.rank() as i64, (Kind::Uint8, Device::Cpu));
    let pending = start(&group, tensor.shallow_clone());
    let deadline = Instant::now() + common::TIMEOUT;
    if group.rank() == 1 {
        while tensor.int64_value(&[0]) == 0 && Instant::now() < deadline {}
        raise(Signal::SIGSTOP).unwrap();
    }
    let is_stopped =
        || Ok(fs::read_to_string(format!("/proc/{rank_1}/stat"))?.contains(" T ").then_some(()));
    until("rank 1 stopped", past(deadline), is_stopped).unwrap();
    kill(rank_1, Signal::SIGKILL).unwrap();
    let killed = Instant::now();
    let error = pending.wait().unwrap_err().to_string();
    let delay = killed.elapsed();
    assert!(error.contains("rank 1 (pid"), "{error}");
    assert!(delay < Duration::from_secs(30), "after {delay:?}: {error}");
}

#[run_by(common::processes_with(2, through_sockets))]
fn a_send_does_not_wait_for_a_rank_that_dies_in_the_middle_of_it() {
    dies_in_the_middle(|group, tensor| match group.rank() {
        0 => group.isend(tensor, 1).unwrap(),
        _ => group.irecv(tensor, 0).unwrap(),
    });
}

#[run_by(common::processes_with(2, through_sockets))]
fn a_broadcast_does_not_wait_for_a_rank_that_dies_in_the_middle_of_it() {
    dies_in_the_middle(|group, tensor| group.broadcast_async(tensor, 0).unwrap());
}

#[run_by(on_ranks(2))]
fn what_gloo_has_exchanged_occupies_no_memory_afterwards(group: &ProcessGroup) {
    let exchange = || {
        let message = Tensor::zeros([1 << 20], FLOAT_CPU);
        let pending = match group.rank() {
            0 => group.isend(message, 1).unwrap(),
            _ => group.irecv(message, 0).unwrap(),
        };
        let _ = pending.wait().unwrap();
        assert_eq!(group.all_gather(&Tensor::from(1.0)).unwrap().len(), 2);
        memory_allocated(LogicalDevice::Cpu(0)).unwrap()
    };
    exchange();
    let before = exchange();
    // Gloo's thread gives memory back a moment after the last wait. The ranks agree, as each exchange needs both.
    let is_given_back = || {
        let of_all = group.all_gather(&Tensor::from(i64::from(exchange() <= before)))?;
        Ok(of_all.iter().all(|rank| rank.int64_value(&[]) == 1).then_some(()))
    };
    let deadline = past(Instant::now() + common::TIMEOUT);
    until("the memory was given back", deadline, is_given_back).unwrap();
}

#[run_by(on_ranks_with_each_transport(2))]
fn a_message_that_waits_takes_no_part_in_a_monitored_barrier(group: &ProcessGroup) {
    // Over sockets, these move the number of the barrier's messages past the tag, as in Python.
    (0..3).for_each(|_| group.barrier().unwrap());
    if group.rank() == 1 {
        let sent = group.isend(Tensor::from_slice(&[7f32]), 0).unwrap();
        group.monitored_barrier(true).unwrap();
        let _ = sent.wait().unwrap();
        return;
    }
    group.monitored_barrier(true).unwrap();
    let mut received = Tensor::from_slice(&[0f32]);
    group.recv(&mut received, 1).unwrap();
    assert_eq!(received, Tensor::from_slice(&[7f32]));
}
