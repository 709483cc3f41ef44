//! Groups of some of a job's ranks.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

mod common;

use std::time::Duration;
use tch::nn::VarStore;
use tch::{Device, Tensor};
use tch_parallel::checkpoint;
use tch_parallel::distributed::{ProcessGroup, ReduceOp, init_process_group};

/// The sum of the job's ranks in the group.
fn sum(group: &ProcessGroup, own: usize) -> f64 {
    let mut sum = Tensor::from(own as f64);
    group.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    f64::try_from(sum).unwrap()
}

on_ranks!(
    4,
    fn a_group_of_some_ranks_sums_over_these_alone(group: &ProcessGroup) {
        let rank = group.rank();
        let even = group.new_group(&[0, 2]).unwrap();
        let odd = group.new_group(&[3, 1]).unwrap();
        assert_eq!(
            (even.is_some(), odd.is_some()),
            ([0, 2].contains(&rank), [1, 3].contains(&rank))
        );
        let own = even.or(odd).unwrap();
        // Ranks are ordered as in the job, whatever the order in the list.
        assert_eq!((own.rank(), own.world_size()), (rank / 2, 2));
        assert_eq!(sum(&own, rank), [2.0, 4.0][rank % 2]);
        assert_eq!(sum(group, rank), 6.0);
    }
);

on_ranks!(
    3,
    fn a_source_is_a_rank_of_the_group_and_not_of_the_job(group: &ProcessGroup) {
        if let Some(last_two) = group.new_group(&[1, 2]).unwrap() {
            let mut tensor = Tensor::from(group.rank() as f64);
            last_two.broadcast(&mut tensor, 0).unwrap();
            assert_eq!(f64::try_from(tensor).unwrap(), 1.0);
            let error = last_two.broadcast(&mut Tensor::from(0.0), 2).unwrap_err().to_string();
            assert!(error.contains("src is rank 2"), "{error}");
        }
        // Rank 0 serves the store, so it must not end before the others.
        group.barrier().unwrap();
    }
);

on_ranks!(
    2,
    fn a_group_that_is_made_with_a_time_limit_keeps_it(group: &ProcessGroup) {
        let limit = Duration::from_secs(5);
        let limited = group.with_timeout(limit).new_group(&[0, 1]).unwrap().unwrap();
        if group.rank() == 0 {
            let mut tensor = Tensor::from(1.0);
            let error = limited.all_reduce(&mut tensor, ReduceOp::Sum).unwrap_err().to_string();
            assert!(error.contains("after 5000 ms waiting for rank 1"), "{error}");
        }
        // Rank 1 waits here for much longer than that.
        group.barrier().unwrap();
    }
);

on_ranks!(
    3,
    fn groups_can_be_made_again_and_of_groups(group: &ProcessGroup) {
        let rank = group.rank();
        let [first, second] = [0, 1].map(|_| group.new_group(&[0, 1, 2]).unwrap().unwrap());
        assert_eq!((sum(&second, rank), sum(&first, rank)), (3.0, 3.0));
        if let Some(pair) = first.new_group(&[0, 2]).unwrap() {
            assert_eq!(sum(&pair, rank), 2.0);
        }
    }
);

#[test]
fn a_group_outlives_the_group_it_was_made_from() {
    common::processes(2, "a_group_outlives_the_group_it_was_made_from", || {
        let world = init_process_group(common::options()).unwrap();
        let both = world.new_group(&[0, 1]).unwrap().unwrap();
        drop(world);
        // Saving requires all ranks to agree, which they do through the store.
        let directory = tempfile::tempdir().unwrap();
        let vs = VarStore::new(Device::Cpu);
        let _ = vs.root().zeros("weight", &[2]);
        checkpoint::save(directory.path().join("model.safetensors"), &vs, &both).unwrap();
        assert_eq!(sum(&both, both.rank()), 1.0);
    });
}

on_ranks!(
    2,
    fn a_list_that_makes_no_group_is_refused(group: &ProcessGroup) {
        for ranks in [&[][..], &[0, 0], &[0, 2]] {
            let error = group.new_group(ranks).unwrap_err().to_string();
            assert!(error.starts_with("ranks is "), "{error}");
        }
        // The next group still has the same name on all ranks.
        assert_eq!(sum(&group.new_group(&[0, 1]).unwrap().unwrap(), 1), 2.0);
    }
);
