//! Ranks of one host exchange tensors through shared memory, in order and without harm to others.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

#[path = "../common/mod.rs"]
mod common;
mod failures;

use c10d_sys::{ReduceOp, storage::Memory};
use common::{FLOAT, LATER, NOW, Now, Random, Rank};
use common::{allocated, bits, with_ranks, with_ranks_and_timeout};
use std::{ops::Range, sync::Barrier, thread, time::Duration, time::Instant};
use tch::{Device, Kind, Tensor};
use tests::run_by;

fn ones(len: i64) -> Tensor {
    Tensor::ones([len], FLOAT)
}

#[run_by(with_ranks(3))]
fn operations_follow_each_other_in_any_sequence(rank: Rank) {
    for number in 0..3_000 {
        // The same on all ranks, but for how long each takes to come.
        let mut random = Random(number);
        let len = [0, 1, 4_000, 5_000, 140_000][random.below(5) as usize];
        let root = random.below(3) as usize;
        let (in_arena, operation) = (random.below(8), random.below(7));
        let mut delay = Random(number << 8 | rank.rank as u64);
        (0..delay.below(20) * delay.below(1000)).for_each(|_| std::hint::spin_loop());
        let (group, [own, of_root]) = (&rank.shared, [rank.rank, root].map(|it| it as i64 + 1));
        let mine = Tensor::full([len], own, FLOAT);
        let mine = if in_arena >> rank.rank & 1 == 1 { allocated(group, &mine) } else { mine };
        let expected = match operation {
            0 => group.all_reduce(&mine, ReduceOp::Sum, NOW).now().map(|()| 6).unwrap(),
            1 => group.broadcast(&mine, root, NOW).now().map(|()| of_root).unwrap(),
            2 => {
                let outputs = Tensor::zeros([3, len], FLOAT).view([3 * len]);
                group.all_gather_into_tensor(&outputs, &mine, NOW).now().unwrap();
                let of_rank = |r| Tensor::full([len], r + 1_i64, FLOAT);
                assert_eq!(outputs, Tensor::cat(&[0, 1, 2].map(of_rank), 0), "{number}");
                own
            }
            3 => {
                let parts = len / 3;
                let (output, input) = (Tensor::zeros([parts], FLOAT), mine.narrow(0, 0, 3 * parts));
                group.reduce_scatter_tensor(&output, &input, ReduceOp::Sum, NOW).now().unwrap();
                assert_eq!(output, Tensor::full([parts], 6, FLOAT), "{number}");
                // No rank reads it any more.
                let _ = mine.shallow_clone().zero_();
                0
            }
            4 => {
                group.reduce(&mine, root, ReduceOp::Sum, NOW).now().unwrap();
                if own == of_root { 6 } else { own }
            }
            5 => {
                let (parts, output) = (len / 3, Tensor::zeros([len / 3], FLOAT));
                let inputs = mine.narrow(0, 0, 3 * parts).chunk(3, 0);
                let inputs = if own == of_root { &inputs[..] } else { &[] };
                group.scatter(&output, inputs, root, NOW).now().unwrap();
                assert_eq!(output, Tensor::full([parts], of_root, FLOAT), "{number}");
                own
            }
            _ => group.barrier(NOW).now().map(|()| own).unwrap(),
        };
        assert_eq!(mine, Tensor::full([len], expected, FLOAT), "{number}");
    }
}

#[test]
fn a_message_that_does_not_come_is_waited_for_as_long_as_the_groups_timeout() {
    let done = Barrier::new(2);
    // The ranks may take ten minutes to connect.
    let timeout = Duration::from_millis(500);
    let waited = with_ranks_and_timeout(2, timeout, |Rank { rank, gloo, .. }| {
        let begin = Instant::now();
        let outcome = if rank == 0 { gloo.recv(&ones(10), 1, 0).now() } else { Ok(()) };
        let waited = begin.elapsed();
        done.wait();
        outcome.err().map(|_| waited)
    });
    let may_take = timeout..Duration::from_secs(60);
    assert!(waited[0].is_some_and(|waited| may_take.contains(&waited)), "{waited:?}");
}

#[run_by(with_ranks(3))]
fn more_than_a_cache_keeps_arrives_whole(rank: Rank) {
    let len = (11 << 20) + 13;
    let numbers = Tensor::arange(3 * len, FLOAT).remainder(251).to_kind(Kind::Uint8);
    let mine = numbers.narrow(0, rank.rank as i64 * len, len).copy();
    for mine in [allocated(&rank.shared, &mine), mine] {
        // No rank's part begins where a cache line does.
        let outputs = Tensor::cat(&[&mine, &numbers], 0).zero_().narrow(0, len, 3 * len);
        rank.shared.all_gather_into_tensor(&outputs, &mine, NOW).now().unwrap();
        assert_eq!(outputs, numbers);
    }
}

#[run_by(with_ranks(3))]
fn operations_that_overlap_are_carried_out_in_order_even_if_a_rank_comes_late(rank: Rank) {
    for delay in [0, 300] {
        let tensors: Vec<_> = (0..40).map(|i| Tensor::full([1 << (i % 17)], i, FLOAT)).collect();
        if rank.rank == 1 {
            // The second time, until the others have queued all of their operations and wait.
            thread::sleep(Duration::from_millis(delay));
        }
        let start = |tensor| rank.shared.all_reduce(tensor, ReduceOp::Sum, LATER).unwrap();
        let started: Vec<_> = tensors.iter().map(start).collect();
        let (last, gathered) = (Tensor::ones([1], FLOAT), [(); 3].map(|()| ones(10)));
        let own = Tensor::full([10], rank.rank as i64, FLOAT);
        rank.shared.all_gather(&gathered, &own, NOW).now().unwrap();
        assert_eq!(gathered[2], Tensor::full([10], 2, FLOAT));
        rank.shared.all_reduce(&last, ReduceOp::Sum, NOW).now().unwrap();
        assert_eq!(f64::try_from(last).unwrap(), 3.0);
        for (i, work) in started.into_iter().enumerate() {
            work.wait(None).unwrap();
            assert_eq!(tensors[i], Tensor::full([1 << (i % 17)], 3 * i as i64, FLOAT));
        }
    }
}

#[test]
fn nothing_of_a_group_is_left_but_tensors_that_are_still_used() {
    let tensors = with_ranks(2, |rank| {
        let tensor = allocated(&rank.shared, &Tensor::ones([100_000], FLOAT));
        rank.shared.all_reduce(&tensor, ReduceOp::Sum, NOW).now().unwrap();
        tensor
    });
    // Other tests of this process have such files of their own.
    let address = tensors[0].data_ptr() as usize;
    let file = files().into_iter().find(|(range, _)| range.contains(&address)).unwrap().1;
    tensors.iter().for_each(|it| assert_eq!(*it, Tensor::full([100_000], 2, FLOAT)));
    drop(tensors);
    assert!(files().iter().all(|(_, inode)| *inode != file));
}

/// The shared files that this process has mapped: where, and their inodes.
fn files() -> Vec<(Range<usize>, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.contains("memfd:tch-parallel"));
    ours.map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (begin, end) = columns[0].split_once('-').unwrap();
        let number = |hex| usize::from_str_radix(hex, 16).unwrap();
        (number(begin)..number(end), columns[4].to_owned())
    })
    .collect()
}

#[run_by(with_ranks(2))]
fn a_forked_child_harms_nobody(Rank { rank, shared, .. }: Rank) {
    let tensor = allocated(&shared, &Tensor::ones([100_000], FLOAT));
    let same_memory = tensor.shallow_clone();
    if rank == 0 {
        // SAFETY: the child only frees what it has inherited, and ends without destructors.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_refused = |when| shared.barrier(when).now().is_err();
            let refused = is_refused(NOW) && is_refused(LATER);
            drop(tensor);
            drop(same_memory);
            drop(shared.allocate_tensor(&[10], FLOAT));
            // SAFETY: ends this process.
            unsafe { libc::_exit(if refused { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: `status` lives through the call.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }
    shared.all_reduce(&tensor, ReduceOp::Sum, NOW).now().unwrap();
    assert_eq!(tensor, Tensor::full([100_000], 2, FLOAT));
}

#[run_by(with_ranks(2))]
fn memory_is_free_as_soon_as_an_exchange_in_it_is_over(rank: Rank) {
    let all = Tensor::zeros([128], FLOAT);
    let mut memory = Memory::of(&all);
    for _ in 0..5000 {
        rank.shared.all_gather_into_tensor(&all, &ones(64), LATER).now().unwrap();
        let block = memory.free("freed").unwrap();
        assert!(block.is_some());
        memory.allocate(block).unwrap();
    }
}

#[run_by(with_ranks(2))]
fn what_nobody_waits_for_does_not_hold_up_what_follows(Rank { rank, shared, .. }: Rank) {
    let [unread, sum] = [1, 2].map(|number| Tensor::full([10], number, FLOAT));
    if rank == 1 {
        // Until rank 0 has started alone, and so left it all to a wait.
        thread::sleep(Duration::from_millis(300));
    }
    drop(shared.all_reduce(&unread, ReduceOp::Sum, NOW).unwrap());
    shared.all_reduce(&sum, ReduceOp::Sum, NOW).now().unwrap();
    assert_eq!(sum, Tensor::full([10], 4, FLOAT));
}

#[run_by(with_ranks(2))]
fn tensors_are_taken_as_they_lie_in_memory(rank: Rank) {
    for kind in [Kind::Bool, Kind::Float, Kind::ComplexFloat, Kind::Int16] {
        let table = Tensor::arange(40_000, FLOAT).reshape([200, 200]).remainder(2.0);
        let ours = table.to_kind(kind).tr();
        let gloos = ours.copy();
        let outcomes = [(&rank.shared, &ours), (&rank.gloo, &gloos)]
            .map(|(group, tensor)| group.all_reduce(tensor, ReduceOp::Sum, NOW).now().is_ok());
        // Gloo takes no Int16, with or without shared memory.
        assert_eq!(outcomes, [kind != Kind::Int16; 2], "{kind:?}");
        assert_eq!(bits(&ours.contiguous()), bits(&gloos.contiguous()), "{kind:?}");
        if outcomes[0] {
            rank.shared.barrier(NOW).now().unwrap();
        }
        // Gloo sums complex numbers, but cannot gather them.
        if matches!(kind, Kind::Bool | Kind::Float) {
            let [ours, gloos] = [&rank.shared, &rank.gloo].map(|group| {
                let whole = table.to_kind(kind).tr();
                let as_input = || Tensor::zeros_like(&whole);
                let otherwise = || Tensor::zeros([200, 200], (kind, Device::Cpu));
                let gathered = [as_input(), otherwise(), otherwise(), as_input()];
                gathered.chunks(2).for_each(|it| group.all_gather(it, &whole, NOW).now().unwrap());
                let part = Tensor::zeros([200, 100], (kind, Device::Cpu)).tr();
                group.reduce_scatter_tensor(&part, &whole, ReduceOp::Sum, NOW).now().unwrap();
                let all = gathered.iter().chain([&part]);
                all.map(|tensor| bits(&tensor.contiguous())).collect::<Vec<_>>()
            });
            let unequal: Vec<_> = (0..5).filter(|i| ours[*i] != gloos[*i]).collect();
            assert_eq!(unequal, [0; 0], "{kind:?}");
        }
    }
}
