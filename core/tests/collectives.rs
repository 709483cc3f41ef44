//! The collectives between processes. Each of these tests fails if its collective does nothing.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use std::time::{Duration, SystemTime};
use tch::Tensor;
use tch_parallel::distributed::{AvgMetric, ProcessGroup, ReduceOp};

/// A tensor that is different on every rank.
fn own(group: &ProcessGroup) -> Tensor {
    Tensor::from_slice(&[1.0, 10.0]) * (group.rank() as f64 + 1.0)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor).unwrap()
}

on_ranks!(
    3,
    fn all_reduce_gives_every_rank_the_sum(group: &ProcessGroup) {
        let mut tensor = own(group);
        group.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert_eq!(values(&tensor), [6.0, 60.0]);
    }
);

on_ranks!(
    3,
    fn all_reduce_gives_every_rank_the_extremes_and_the_product(group: &ProcessGroup) {
        for (op, expected) in [(ReduceOp::Max, 3.0), (ReduceOp::Min, 1.0), (ReduceOp::Product, 6.0)]
        {
            let mut tensor = own(group);
            group.all_reduce(&mut tensor, op).unwrap();
            assert_eq!(values(&tensor)[0], expected, "{op:?}");
        }
    }
);

on_ranks!(
    3,
    fn all_reduce_gives_every_rank_the_mean_but_not_of_integers(group: &ProcessGroup) {
        let mut tensor = own(group);
        group.all_reduce(&mut tensor, ReduceOp::Avg).unwrap();
        assert_eq!(values(&tensor), [2.0, 20.0]);
        let error = group.all_reduce(&mut Tensor::from(1i64), ReduceOp::Avg).unwrap_err();
        assert!(error.to_string().contains("ReduceOp::Avg of a tensor is of Int64"), "{error}");
        group.barrier().unwrap();
    }
);

on_ranks!(
    2,
    fn a_view_with_gaps_is_refused_and_the_group_goes_on(group: &ProcessGroup) {
        let table = Tensor::arange(6, (tch::Kind::Float, group.device())).reshape([3, 2]);
        let column = || table.select(1, 0);
        let other = 1 - group.rank();
        let refused = [
            group.all_reduce(&mut column(), ReduceOp::Sum),
            group.all_reduce_async(column(), ReduceOp::Sum).map(|_| ()),
            group.broadcast(&mut column(), 0),
            group.reduce(&mut column(), 0, ReduceOp::Sum),
            group.all_gather(&column()).map(|_| ()),
            group.send(&column(), other),
            group.recv(&mut column(), other),
            group.isend(column(), other).map(|_| ()),
            group.irecv(column(), other).map(|_| ()),
        ];
        for result in refused {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("a view of [3] with the strides [2]"), "{error}");
        }
        let mut contiguous = column().contiguous();
        group.all_reduce(&mut contiguous, ReduceOp::Sum).unwrap();
        assert_eq!(values(&contiguous), [0.0, 4.0, 8.0]);
    }
);

on_ranks!(
    2,
    fn an_asynchronous_all_reduce_gives_the_sum_when_waited_for(group: &ProcessGroup) {
        let first = group.all_reduce_async(own(group), ReduceOp::Sum).unwrap();
        let second = group.all_reduce_async(own(group), ReduceOp::Max).unwrap();
        assert_eq!(values(&second.wait().unwrap()), [2.0, 20.0]);
        while !first.is_completed().unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(values(&first.wait().unwrap()), [3.0, 30.0]);
    }
);

on_ranks!(
    3,
    fn broadcast_copies_the_sources_tensor(group: &ProcessGroup) {
        for source in 0..3 {
            let mut tensor = own(group);
            group.broadcast(&mut tensor, source).unwrap();
            assert_eq!(values(&tensor)[0], source as f64 + 1.0);
        }
    }
);

on_ranks!(
    3,
    fn reduce_gives_the_sum_to_the_destination(group: &ProcessGroup) {
        let mut tensor = own(group);
        group.reduce(&mut tensor, 1, ReduceOp::Sum).unwrap();
        if group.rank() == 1 {
            assert_eq!(values(&tensor), [6.0, 60.0]);
        }
    }
);

on_ranks!(
    3,
    fn all_gather_gives_all_tensors_in_the_order_of_ranks(group: &ProcessGroup) {
        let gathered = group.all_gather(&own(group)).unwrap();
        let firsts: Vec<_> = gathered.iter().map(|tensor| values(tensor)[0]).collect();
        assert_eq!(firsts, [1.0, 2.0, 3.0]);
    }
);

on_ranks!(
    2,
    fn what_is_sent_is_received(group: &ProcessGroup) {
        let mut received = Tensor::zeros_like(&own(group));
        if group.rank() == 0 {
            group.send(&own(group), 1).unwrap();
            received = group.irecv(received, 1).unwrap().wait().unwrap();
            assert_eq!(values(&received), [2.0, 20.0]);
        } else {
            group.recv(&mut received, 0).unwrap();
            assert_eq!(values(&received), [1.0, 10.0]);
            let _sent = group.isend(own(group), 0).unwrap().wait().unwrap();
        }
    }
);

on_ranks!(
    2,
    fn a_barrier_holds_the_fast_rank_until_the_slow_one_comes(group: &ProcessGroup) {
        if group.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
        }
        let came = SystemTime::now();
        group.barrier().unwrap();
        let left = SystemTime::now();
        let [_, slow] = group.all_gather_object(&came).unwrap()[..] else { panic!() };
        assert!(left >= slow, "rank {} left at {left:?}, before {slow:?}", group.rank());
    }
);

on_ranks!(
    3,
    fn a_monitored_barrier_names_the_ranks_that_did_not_come(group: &ProcessGroup) {
        // Waits until ranks 0 and 1 have started, however long that takes, so that they are in
        // time.
        group.barrier().unwrap();
        let timeout = Duration::from_secs(4);
        match group.rank() {
            0 => {
                let error = group.monitored_barrier(timeout).unwrap_err().to_string();
                assert!(error.contains("Ranks 2 failed to pass monitoredBarrier"), "{error}");
            }
            1 => {
                group.monitored_barrier(timeout).unwrap_err();
            }
            _ => std::thread::sleep(2 * timeout),
        }
    }
);

on_ranks!(
    2,
    fn a_monitored_barrier_lets_all_through_when_all_have_come(group: &ProcessGroup) {
        group.monitored_barrier(Duration::from_secs(10)).unwrap();
    }
);

on_ranks!(
    2,
    fn a_process_joins_its_job_once(group: &ProcessGroup) {
        let error = ProcessGroup::from_env().unwrap_err().to_string();
        assert!(error.contains("this process has already joined it"), "{error}");
        group.barrier().unwrap();
    }
);

on_ranks!(
    2,
    fn a_mean_over_ranks_weighs_every_value_the_same(group: &ProcessGroup) {
        let mut mean = AvgMetric::new();
        // The mean of the means, 10 and 1, would be 5.5.
        match group.rank() {
            0 => mean.update(10.0, 1),
            _ => mean.update(4.0, 4),
        }
        assert_eq!(mean.summarize(group).unwrap(), 14.0 / 5.0);
    }
);

on_ranks!(
    2,
    fn ranks_that_do_not_exist_are_refused_before_anything_is_sent(group: &ProcessGroup) {
        let error = group.broadcast(&mut own(group), 2).unwrap_err().to_string();
        assert_eq!(error, "src is rank 2, but must be a rank below the world size, 2");
        let error = group.send(&own(group), group.rank()).unwrap_err().to_string();
        let rank = group.rank();
        assert_eq!(
            error,
            format!("dst is rank {rank}, this rank itself, but must be another rank")
        );
        // The group can still be used.
        group.barrier().unwrap();
    }
);

on_ranks!(
    2,
    fn a_rank_that_ends_early_is_named_to_the_one_that_waits(group: &ProcessGroup) {
        // After this, all ranks are connected.
        group.barrier().unwrap();
        if group.rank() == 1 {
            // Exits at once, so that the connections close only when the process ends.
            std::process::exit(0);
        }
        let error = group.all_reduce(&mut own(group), ReduceOp::Sum).unwrap_err().to_string();
        assert!(error.starts_with("rank 0: all_reduce failed: "), "{error}");
        assert!(error.contains("(rank 1 (pid ") && error.ends_with(") has ended)"), "{error}");
    }
);

on_ranks!(
    1,
    fn a_world_of_one_has_collectives_as_well(group: &ProcessGroup) {
        let mut tensor = own(group);
        group.all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert_eq!(values(&tensor), [1.0, 10.0]);
        assert_eq!(group.all_gather(&tensor).unwrap().len(), 1);
        group.barrier().unwrap();
    }
);
