//! Ranks of one host exchange tensors through shared memory, in order and without harm to others.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use c10d_sys::storage::Memory;
use c10d_sys::{Error, ErrorKind, GlooAddress, GlooOptions, ProcessGroup, ReduceOp, Store, Work};
use common::{FLOAT, LATER, NOW, Now, Random, Rank, allocated, with_ranks, with_ranks_and_timeout};
use std::time::{Duration, Instant};
use std::{ops::Range, process::Command, sync::Barrier, sync::Mutex, thread};
use tch::{Kind, Tensor};
use tests::run_by;

#[run_by(with_ranks(3))]
fn operations_follow_each_other_in_any_sequence(rank: Rank) {
    for number in 0..3_000 {
        // The same on all ranks, but for how long each takes to come.
        let mut random = Random(number);
        let len = [0, 1, 4_000, 5_000, 140_000][random.below(5) as usize];
        let root = random.below(3) as usize;
        let (in_arena, operation) = (random.below(8), random.below(7));
        let mut delay = Random(number << 8 | rank.rank as u64);
        for _ in 0..delay.below(20) * delay.below(1000) {
            std::hint::spin_loop();
        }
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
    let waited =
        with_ranks_and_timeout(2, Duration::from_millis(500), |Rank { rank, gloo, .. }| {
            let begin = Instant::now();
            let outcome = if rank == 0 { gloo.recv(&ones(10), 1, 0).now() } else { Ok(()) };
            let waited = begin.elapsed();
            done.wait();
            outcome.err().map(|_| waited)
        });
    assert!(waited[0].is_some_and(|waited| waited < Duration::from_secs(60)), "{waited:?}");
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

fn ones(len: i64) -> Tensor {
    Tensor::ones([len], FLOAT)
}

#[test]
fn ranks_that_call_different_operations_are_told_which() {
    const SUM: ReduceOp = ReduceOp::Sum;
    type Call = fn(&ProcessGroup) -> Result<Work, Error>;
    let sum_of_10: Call = |group| group.all_reduce(&ones(10), SUM, NOW);
    let long_sum: Call = |group| group.all_reduce(&ones(1_000_000), SUM, NOW);
    let gather: Call = |group| group.all_gather(&[ones(10), ones(10)], &ones(10), NOW);
    let sum_of_doubles: Call = |group| group.all_reduce(&ones(10).to_kind(Kind::Double), SUM, NOW);
    let sum_of_parts: Call = |group| group.reduce_scatter_tensor(&ones(5), &ones(10), SUM, NOW);
    let rows: Call = |group| group.all_to_all_single(&ones(9), &ones(9), &[4, 5], &[4, 5], NOW);
    let others: [(Call, &str); 12] = [
        (|group| group.all_reduce(&ones(12), SUM, NOW), "all_reduce (sum) of 12 x Float"),
        (long_sum, "all_reduce (sum) of 1000000 x Float"),
        (sum_of_doubles, "all_reduce (sum) of 10 x Double"),
        (|group| group.all_reduce(&ones(10), ReduceOp::Max, NOW), "all_reduce (max) of 10 x Float"),
        (|group| group.broadcast(&ones(10), 1, NOW), "broadcast from rank 1 of 10 x Float"),
        (|group| group.barrier(NOW), "barrier"),
        (|group| group.reduce(&ones(10), 0, SUM, NOW), "reduce (sum) to rank 0 of 10 x Float"),
        (|group| group.gather(&[], &ones(10), 0, NOW), "gather to rank 0 of 10 x Float"),
        (gather, "all_gather of 10 x Float"),
        (sum_of_parts, "reduce_scatter (sum) of 10 x Float"),
        (|group| group.scatter(&ones(5), &[], 0, NOW), "scatter from rank 0 of 10 x Float"),
        // This one is left to gloo, which would wait for the other rank.
        (rows, "all_to_all_single of Float, by way of gloo"),
    ];
    for (other, name) in others {
        let errors = with_ranks(2, |Rank { rank, shared, .. }| {
            let call = if rank == 0 { sum_of_10 } else { other };
            call(&shared).now().unwrap_err()
        });
        let names_both = |error: &Error| {
            error.message().contains("rank 0 calls all_reduce (sum) of 10 x Float")
                && error.message().contains(&format!("rank 1 calls {name}"))
        };
        // Gloo, once it waits, only learns that the other rank has left.
        let is_gloos = |error: &Error| error.message().contains("gloo/");
        assert!(errors.iter().any(names_both), "{errors:?}");
        assert!(errors.iter().all(|error| names_both(error) || is_gloos(error)), "{errors:?}");
    }
}

/// Rank 0's error if rank 1 does not come.
fn late(group: fn(&Rank) -> &ProcessGroup) -> Error {
    let rank_0_is_done = Barrier::new(2);
    let mut errors = with_ranks_and_timeout(2, Duration::from_secs(3), |rank| {
        let error = (rank.rank == 0).then(|| group(&rank).barrier(NOW).now().unwrap_err());
        rank_0_is_done.wait();
        error
    });
    errors.remove(0).unwrap()
}

/// Rank 0's error if rank 1 has left.
fn gone(group: fn(&Rank) -> &ProcessGroup) -> Error {
    let mut errors = with_ranks(2, |rank| {
        rank.gloo.barrier(NOW).now().unwrap();
        (rank.rank == 0).then(|| group(&rank).barrier(NOW).now().unwrap_err())
    });
    errors.remove(0).unwrap()
}

#[test]
fn a_rank_that_leaves_or_does_not_come_in_time_is_named() {
    let error = gone(|rank| &rank.shared);
    assert_eq!(error.message(), "lost connection to rank 1, which has left the group");
    assert_eq!(error.kind(), ErrorKind::Connection);
    let error = late(|rank| &rank.shared);
    assert_eq!(error.message(), "timed out after 3000 ms waiting for rank 1 in barrier");
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[test]
fn gloo_tells_a_late_rank_from_one_that_is_gone() {
    assert_eq!(late(|rank| &rank.gloo).kind(), ErrorKind::Timeout);
    assert_eq!(gone(|rank| &rank.gloo).kind(), ErrorKind::Connection);
}

#[test]
fn a_rank_that_cannot_connect_tells_the_ranks_it_has_not_tried() {
    let (begin, timeout) = (Instant::now(), Duration::from_secs(120));
    let mut told = 0;
    // Which rank waits for the other depends on their ports.
    for _ in 0..16 {
        let store = Store::hash().unwrap();
        let join = |name| {
            let (address, join_timeout) = (GlooAddress::Host("127.0.0.1".into()), timeout);
            let options =
                GlooOptions { address, shared_memory: false, name, timeout, join_timeout };
            ProcessGroup::gloo(&store, name, 3, &options).unwrap_err()
        };
        thread::scope(|scope| {
            scope.spawn(|| join(0));
            let rank_2 = scope.spawn(|| join(2));
            // Rank 1's address is that of rank 0, but with port 0, where no program can listen.
            let addresses = store.with_prefix("cpu/").unwrap();
            let mut address = addresses.get("0/0", timeout).unwrap();
            let host_name_len = u64::from_ne_bytes(address[..8].try_into().unwrap());
            let port = 8 + host_name_len as usize + 8 + 2;
            address[port..port + 2].fill(0);
            addresses.set("0/1", &address).unwrap();
            let error = rank_2.join().unwrap();
            let is_told = error.message().starts_with("rank 0 could not connect: Gloo");
            told += usize::from(is_told && error.kind() == ErrorKind::Connection);
        });
    }
    assert!(told > 0, "rank 2 never waited for rank 0");
    assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[test]
fn ranks_that_compare_their_calls_tell_a_missing_one_from_a_different_call() {
    const NAME: &str = "ranks_that_compare_their_calls_tell_a_missing_one_from_a_different_call";
    const DEBUG: (&str, &str) = ("TORCH_DISTRIBUTED_DEBUG", "DETAIL");
    if std::env::var(DEBUG.0).as_deref() != Ok(DEBUG.1) {
        // It is read once in a process.
        let mut again = Command::new(std::env::current_exe().unwrap());
        let said = again.args(["--exact", NAME]).env(DEBUG.0, DEBUG.1).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        return;
    }
    for error in [late(|rank| &rank.gloo), gone(|rank| &rank.gloo)] {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
    let errors = with_ranks(2, |Rank { rank, gloo, .. }| {
        let numbers = Tensor::ones([2], FLOAT);
        let started = match rank {
            0 => gloo.all_reduce(&numbers, ReduceOp::Sum, NOW),
            _ => gloo.broadcast(&numbers, 0, NOW),
        };
        started.now().unwrap_err()
    });
    errors.iter().for_each(|error| assert_eq!(error.kind(), ErrorKind::Misuse, "{error}"));
}

#[test]
fn a_rank_that_waits_for_a_slow_one_notices_that_another_is_gone() {
    let two_are_done = Barrier::new(2);
    let errors = with_ranks(3, |Rank { rank, shared, gloo, .. }| {
        // Both groups are connected before rank 2 leaves them.
        gloo.barrier(NOW).now().unwrap();
        let error = (rank == 1).then(|| shared.barrier(NOW).now().unwrap_err());
        if rank < 2 {
            two_are_done.wait();
        }
        error
    });
    let message = errors[1].as_ref().unwrap().message();
    assert!(message.contains("lost connection to rank 2"), "{message}");
}

#[test]
fn a_sleeping_rank_learns_at_once_that_the_one_it_waits_for_has_left() {
    let notice = || {
        let moments = with_ranks(2, |Rank { rank, shared, .. }| {
            // Rank 0 asks whether rank 1 is alive just before that leaves. If not, since all is slow, this still passes.
            thread::sleep(Duration::from_millis(2 * rank as u64));
            shared.barrier(NOW).now().unwrap();
            thread::sleep(Duration::from_millis(2 * rank as u64));
            (rank == 0).then(|| shared.barrier(NOW).now().unwrap_err());
            Instant::now()
        });
        moments[0].saturating_duration_since(moments[1])
    };
    let soonest = (0..5).map(|_| notice()).min().unwrap();
    // Without being woken, it would notice when it asks again.
    assert!(soonest < Duration::from_millis(50), "after {soonest:?}");
}

#[test]
fn what_a_rank_reads_while_its_owner_fails_is_no_result() {
    for _ in 0..10 {
        let output = Mutex::new(Tensor::zeros([1 << 24], FLOAT));
        let started = Barrier::new(2);
        // Of the first quarter, so that there is time to fail.
        let early = output.lock().unwrap().get(1 << 21).data_ptr() as usize;
        with_ranks(2, |Rank { rank, shared, .. }| {
            if rank == 1 {
                let output = output.lock().unwrap();
                // Otherwise rank 0 would carry its part out within the call.
                started.wait();
                if shared.broadcast(&output, 0, NOW).now().is_ok() {
                    assert_eq!(f64::try_from(output.min()).unwrap(), 1.0);
                }
                return;
            }
            let input = allocated(&shared, &Tensor::ones([1 << 24], FLOAT));
            let work = shared.broadcast(&input, 0, LATER).unwrap();
            started.wait();
            let begin = Instant::now();
            // SAFETY: the output lives as long as the ranks.
            let has_not_arrived = || unsafe { (early as *const f32).read_volatile() } == 0.0;
            while has_not_arrived() && begin.elapsed() < Duration::from_secs(60) {
                std::hint::spin_loop();
            }
            assert!(!has_not_arrived());
            thread::scope(|scope| {
                scope.spawn(|| shared.fail().unwrap());
                let _ = work.wait(None);
                drop((work, input));
            });
        });
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
