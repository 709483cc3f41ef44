//! What ranks learn of one another when they do not all do the same: who calls something else, is late, or is gone.

use crate::common::{FLOAT, LATER, NOW, Now, Rank, allocated, with_ranks, with_ranks_and_timeout};
use crate::ones;
use c10d_sys::{Error, ErrorKind, GlooAddress, GlooOptions, ProcessGroup, ReduceOp, Store, Work};
use std::time::{Duration, Instant};
use std::{process::Command, sync::Barrier, sync::Mutex, thread};
use tch::{Kind, Tensor};

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
    const NAME: &str =
        "failures::ranks_that_compare_their_calls_tell_a_missing_one_from_a_different_call";
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
