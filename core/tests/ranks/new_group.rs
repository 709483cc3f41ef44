//! Groups of some of a job's ranks.

use crate::{collectives::all_reduced, prelude::*};

pub fn sum(group: &ProcessGroup, own: usize) -> f64 {
    all_reduced(group, Tensor::from(own as f64), ReduceOp::Sum).double_value(&[])
}

#[run_by(on_ranks(4))]
fn a_group_of_some_ranks_sums_over_these_alone(group: &ProcessGroup) {
    let rank = group.rank();
    let [even, odd] = [[0, 2], [3, 1]].map(|ranks| group.new_group(&ranks).unwrap());
    assert_eq!((even.is_some(), odd.is_some()), (rank.is_multiple_of(2), rank % 2 == 1));
    let own = even.or(odd).unwrap();
    // Ranks are ordered as in the job, whatever the order in the list.
    assert_eq!((own.rank(), own.world_size()), (rank / 2, 2));
    assert_eq!(sum(&own, rank), [2.0, 4.0][rank % 2]);
    assert_eq!(sum(group, rank), 6.0);
    assert_eq!((own.ranks(), group.ranks()), (vec![rank % 2, rank % 2 + 2], vec![0, 1, 2, 3]));
}

#[run_by(on_ranks(4))]
fn only_the_members_need_to_make_a_group(group: &ProcessGroup) {
    let half = if group.rank() < 2 { [0, 1] } else { [2, 3] };
    let [first, second] = [(); 2].map(|()| group.new_group(&half).unwrap().unwrap());
    let expected = (half[0] + half[1]) as f64;
    assert_eq!((sum(&first, group.rank()), sum(&second, group.rank())), (expected, expected));
    if group.rank() > 0 {
        group.new_group(&[1, 2, 3]).unwrap().unwrap().barrier().unwrap();
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(3))]
fn a_source_is_a_rank_of_the_group_and_not_of_the_job(group: &ProcessGroup) {
    if let Some(last_two) = group.new_group(&[1, 2]).unwrap() {
        let mut tensor = Tensor::from(group.rank() as f64);
        last_two.broadcast(&mut tensor, 0).unwrap();
        assert_eq!(f64::try_from(tensor).unwrap(), 1.0);
        expect_error(last_two.broadcast(&mut Tensor::from(0.0), 2), "src is rank 2");
    }
    // Rank 0 serves the store, so it must not end before the others.
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn a_group_that_is_made_with_a_time_limit_keeps_it(group: &ProcessGroup) {
    let limited = group.with_timeout(Duration::from_secs(5)).new_group(&[0, 1]).unwrap().unwrap();
    if group.rank() == 0 {
        let reduced = limited.all_reduce(&mut Tensor::from(1.0), ReduceOp::Sum);
        expect_error(reduced, "after 5000 ms waiting for rank 1");
    }
    // Rank 1 waits here for much longer than that.
    group.barrier().unwrap();
}

#[run_by(on_ranks(3))]
fn who_does_not_come_has_its_number_in_the_job(group: &ProcessGroup) {
    if group.rank() == 1 {
        let made = group.with_timeout(Duration::from_millis(300)).new_group(&[1, 2]);
        let expected = "rank 1 of 2 could not join the group of ranks [1, 2]: rank 2 did not arrive within 300ms";
        assert_eq!(message(made), expected);
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(3))]
fn groups_can_be_made_again_and_of_groups(group: &ProcessGroup) {
    let rank = group.rank();
    let [first, second] = [0, 1].map(|_| group.new_group(&[0, 1, 2]).unwrap().unwrap());
    assert_eq!((sum(&second, rank), sum(&first, rank)), (3.0, 3.0));
    if let Some(pair) = first.new_group(&[0, 2]).unwrap() {
        assert_eq!(sum(&pair, rank), 2.0);
    }
}

#[run_by(common::processes(2))]
fn a_group_outlives_the_group_it_was_made_from() {
    let world = common::join();
    let both = world.new_group(&[0, 1]).unwrap().unwrap();
    drop(world);
    // Saving requires all ranks to agree, which they do through the store.
    let vs = VarStore::new(Device::Cpu);
    let _ = vs.root().zeros("weight", &[2]);
    checkpoint::save("model.safetensors", &vs, &both).unwrap();
    assert_eq!(sum(&both, both.rank()), 1.0);
}

#[run_by(on_ranks(2))]
fn a_list_that_makes_no_group_is_refused(group: &ProcessGroup) {
    for ranks in [&[][..], &[0, 0], &[0, 2]] {
        expect_error_start(group.new_group(ranks), "ranks is ");
    }
    // The next group still has the same name on all ranks.
    assert_eq!(sum(&group.new_group(&[0, 1]).unwrap().unwrap(), 1), 2.0);
}

/// What this process has: threads, descriptors, mappings, and KiB of memory.
fn taken() -> [usize; 4] {
    let count = |directory: &str| fs::read_dir(directory).unwrap().count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kib = resident.split_whitespace().next().unwrap().parse().unwrap();
    let mappings = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    [count("/proc/self/task"), count("/proc/self/fd"), mappings, resident_kib]
}

/// Ends a group in one of three ways: used to the end; with exchanges that nobody waits for; after a
/// failure, while this rank still waits for the one that failed.
fn end(group: ProcessGroup, way: usize) {
    let sum =
        |kind| group.all_reduce_async(Tensor::ones([5000], (kind, Device::Cpu)), ReduceOp::Sum);
    // All have joined before one fails.
    let met = group.barrier();
    match way % 3 {
        0 => {
            met.unwrap();
            assert_eq!(sum(Kind::Float).unwrap().wait().unwrap().double_value(&[4999]), 3.0);
        }
        1 => {
            met.unwrap();
            let _ = [(); 3].map(|()| sum(Kind::Float).unwrap());
        }
        // gloo does not support this kind.
        _ if group.rank() == way % group.world_size() => {
            met.unwrap();
            assert!(sum(Kind::Int16).and_then(|sum| sum.wait()).is_err());
        }
        _ => {
            let [first, _second] = [(); 2].map(|()| sum(Kind::Float));
            assert!(met.and(first).and_then(|sum| sum.wait()).is_err());
        }
    }
}

#[run_by(on_ranks_with_each_transport(3))]
fn a_group_leaves_nothing_behind_however_it_ends(group: &ProcessGroup) {
    let groups = |ways: std::ops::Range<usize>| {
        ways.for_each(|way| end(group.new_group(&[0, 1, 2]).unwrap().unwrap(), way));
    };
    // The heap and the C library's threads have their final size after some.
    groups(0..20);
    let before = taken();
    groups(20..220);
    let has_left_nothing = || {
        // A thread that ends leaves stack and heap, two mappings, to the next. A group that leaked has 16, and 0.2 MiB.
        let [threads, descriptors, mappings, resident_kib] = before;
        let most = [threads, descriptors, mappings + 30, resident_kib + 5120];
        Ok(taken().iter().zip(&most).all(|(after, most)| after <= most).then_some(()))
    };
    // Those with exchanges that nobody waits for end when the last rank has done its part.
    let deadline = Instant::now() + common::TIMEOUT;
    if let Err(error) = until("the groups were gone", past(deadline), has_left_nothing) {
        let what = "threads, descriptors, mappings and KiB of memory";
        panic!("{error}: {what} were {before:?} and are {:?}", taken());
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks(4))]
fn a_group_is_divided_among_its_ranks(group: &ProcessGroup) {
    let rank = group.rank();
    let half = group.new_subgroups(2).unwrap();
    assert_eq!((half.rank(), half.world_size()), (rank % 2, 2));
    assert_eq!(sum(&half, rank), [1.0, 5.0][rank / 2]);
    let part = group.split_group(&[vec![0, 3], vec![2]]).unwrap();
    assert_eq!(part.map(|part| sum(&part, rank)), [Some(3.0), None, Some(2.0), Some(3.0)][rank]);
    expect_error(group.new_subgroups(3), "group_size is 3, but must be a divisor of 4");
    let twice = group.split_group(&[vec![0, 1], vec![1]]);
    expect_error(twice, "split_ranks is a list with rank 1 twice");
    expect_error(group.split_group(&[]), "split_ranks is an empty list");
    group.barrier().unwrap();
}

#[run_by(on_ranks(4))]
fn a_mesh_has_a_group_along_each_dimension(group: &ProcessGroup) {
    let rank = group.rank();
    let mesh = DeviceMesh::new(group, &[("row", 2), ("column", 2)]).unwrap();
    assert_eq!((mesh.shape(), mesh.get_coordinate()), (vec![2, 2], vec![rank / 2, rank % 2]));
    // Ranks that differ in "row" alone are two apart.
    assert_eq!(sum(mesh.get_group("row").unwrap(), rank), [2.0, 4.0][rank % 2]);
    assert_eq!(sum(mesh.get_group("column").unwrap(), rank), [1.0, 5.0][rank / 2]);
    expect_error(mesh.get_group("depth"), "the dimension is \"depth\", but must be one of");
    let wrong = DeviceMesh::new(group, &[("row", 3), ("column", 2)]);
    expect_error(wrong, "sizes whose product is 4, the number of ranks");
    let twice = DeviceMesh::new(group, &[("row", 2), ("row", 2)]);
    expect_error(twice, "dims is a list with \"row\" twice");
}
