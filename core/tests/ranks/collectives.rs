//! The collectives between processes. Each of these tests fails if its collective does nothing.

use crate::prelude::*;
use std::time::SystemTime;

/// A tensor that is different on every rank.
fn own(group: &ProcessGroup) -> Tensor {
    Tensor::from_slice(&[1.0, 10.0]) * (group.rank() as f64 + 1.0)
}

pub fn all_reduced(group: &ProcessGroup, mut tensor: Tensor, op: ReduceOp) -> Tensor {
    group.all_reduce(&mut tensor, op).unwrap();
    tensor
}

#[run_by(on_ranks(3))]
fn all_reduce_gives_every_rank_the_sum_the_mean_the_extremes_or_the_product(group: &ProcessGroup) {
    for (op, expected) in [
        (ReduceOp::Sum, [6.0, 60.0]),
        (ReduceOp::Avg, [2.0, 20.0]),
        (ReduceOp::Max, [3.0, 30.0]),
        (ReduceOp::Min, [1.0, 10.0]),
        (ReduceOp::Product, [6.0, 6000.0]),
    ] {
        assert_eq!(values(&all_reduced(group, own(group), op)), expected, "{op:?}");
    }
    let mean_of_integers = group.all_reduce(&mut Tensor::from(1i64), ReduceOp::Avg);
    expect_error(mean_of_integers, "ReduceOp::Avg of a tensor is of Int64");
    group.barrier().unwrap();
}

#[run_by(on_ranks_with_each_transport(2))]
fn all_reduce_combines_the_bits_of_integers_but_not_of_other_numbers(group: &ProcessGroup) {
    for (op, expected) in [(ReduceOp::Band, 2), (ReduceOp::Bor, 7), (ReduceOp::Bxor, 5)] {
        let bits = Tensor::from([6i64, 3][group.rank()]);
        assert_eq!(all_reduced(group, bits, op).int64_value(&[]), expected, "{op:?}");
    }
    // A sum of the bytes would be no bool.
    let either = all_reduced(group, Tensor::from_slice(&[true, group.rank() == 0]), ReduceOp::Sum);
    assert_eq!(values(&either.view_dtype(Kind::Uint8)), [1.0, 1.0]);
    let error = message(group.all_reduce(&mut own(group), ReduceOp::Bor));
    assert_eq!(error, "ReduceOp::Bor of a tensor is of Double, but must be of integers");
    group.barrier().unwrap();
}

#[run_by(on_ranks_with_each_transport(2))]
fn complex_numbers_have_a_sum_and_a_mean_but_no_order(group: &ProcessGroup) {
    let numbers = || Tensor::complex(&own(group), &-own(group));
    let sum = all_reduced(group, numbers(), ReduceOp::Sum);
    assert_eq!(values(&sum.view_as_real()), [3.0, -3.0, 30.0, -30.0]);
    let gathered = group.all_gather(&numbers()).unwrap();
    assert_eq!(values(&gathered[1].view_as_real()), [2.0, -2.0, 20.0, -20.0]);
    for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Product, ReduceOp::Bxor] {
        let expected = "of a tensor is of ComplexDouble, but must be of real numbers";
        expect_error(group.all_reduce(&mut numbers(), op), expected);
    }
    group.barrier().unwrap();
}

#[run_by(on_ranks_with_each_transport(2))]
fn what_is_only_marked_as_negated_or_conjugated_is_exchanged(group: &ProcessGroup) {
    let numbers = own(group);
    let negated = all_reduced(group, numbers.internal_neg_view(), ReduceOp::Sum);
    assert_eq!(values(&negated.resolve_neg()), [-3.0, -30.0]);
    // It is still a view of these.
    assert_eq!(values(&numbers), [3.0, 30.0]);
    let mut conjugated = Tensor::complex(&own(group), &own(group)).conj();
    group.broadcast(&mut conjugated, 1).unwrap();
    assert_eq!(values(&conjugated.resolve_conj().view_as_real()), [2.0, -2.0, 20.0, -20.0]);
    let gathered = group.all_gather(&own(group).internal_neg_view()).unwrap();
    assert_eq!(values(&Tensor::cat(&gathered, 0)), [-1.0, -10.0, -2.0, -20.0]);
    let pending = group.all_reduce_async(own(group).internal_neg_view(), ReduceOp::Max);
    assert_eq!(values(&pending.unwrap().wait().unwrap().resolve_neg()), [-1.0, -10.0]);
}

#[run_by(on_ranks_with_each_transport(2))]
fn a_view_with_gaps_is_exchanged_without_what_lies_in_them(group: &ProcessGroup) {
    let table = Tensor::arange(6, (tch::Kind::Double, group.device())).reshape([3, 2]);
    group.all_reduce(&mut table.select(1, 0), ReduceOp::Sum).unwrap();
    assert_eq!(values(&table), [0.0, 1.0, 4.0, 3.0, 8.0, 5.0]);
    // Ranks see the same elements, however each of them stores them.
    let turned = if group.rank() == 0 { table.tr() } else { table.tr().contiguous() };
    let turned = all_reduced(group, turned, ReduceOp::Sum);
    assert_eq!(values(&turned), [0.0, 8.0, 16.0, 2.0, 6.0, 10.0]);
    let other = 1 - group.rank();
    let received = table.zeros_like();
    let sent = group.isend(table.select(1, 1), other).unwrap();
    group.recv(&mut received.select(1, 0), other).unwrap();
    let _ = sent.wait().unwrap();
    // Rank 0's table has been summed once more.
    let expected = [[2.0, 6.0, 10.0], [1.0, 3.0, 5.0]][other];
    assert_eq!(values(&received.select(1, 0).contiguous()), expected);
}

#[run_by(on_ranks_with_each_transport(2))]
fn sparse_tensors_have_a_sum(group: &ProcessGroup) {
    let rank = group.rank() as i64;
    let sparse = |index: i64| {
        let (at, one) = (Tensor::from_slice2(&[[index]]), Tensor::from_slice(&[1.0]));
        Tensor::sparse_coo_tensor_indices_size(&at, &one, [3], DOUBLE_CPU, false)
    };
    let sum = all_reduced(group, sparse(rank), ReduceOp::Sum);
    assert_eq!(values(&sum.to_dense(None, false)), [1.0, 1.0, 0.0]);
    let pending = group.all_reduce_async(sparse(2), ReduceOp::Sum).unwrap();
    assert_eq!(values(&pending.wait().unwrap().to_dense(None, false)), [0.0, 0.0, 2.0]);
}

#[run_by(on_ranks(1))]
fn a_world_of_one_has_collectives_but_no_result_whose_elements_share_memory(group: &ProcessGroup) {
    assert_eq!(values(&all_reduced(group, own(group), ReduceOp::Sum)), [1.0, 10.0]);
    let mut numbers = Tensor::from_slice(&[1.0]).expand([3], false);
    let refused = group.all_reduce(&mut numbers, ReduceOp::Sum);
    expect_error(refused, "a view of [3] whose elements share memory");
    let gathered = group.all_gather(&numbers).unwrap();
    assert_eq!((gathered.len(), values(&gathered[0])), (1, vec![1.0; 3]));
    group.barrier().unwrap();
}

#[run_by(on_ranks_with_each_transport(2))]
fn a_tensor_keeps_its_memory_while_it_is_exchanged(group: &ProcessGroup) {
    const COUNT: i64 = 1 << 20;
    let ones = || Tensor::ones([COUNT], DOUBLE_CPU);
    for _ in 0..10 {
        let (mut resized, mut replaced, untouched) = (ones(), ones(), ones());
        let start = |tensor: &Tensor| {
            group.all_reduce_async(tensor.shallow_clone(), ReduceOp::Sum).unwrap()
        };
        let pending = [start(&resized), start(&replaced), start(&untouched)];
        // Gives the memory back, as far as these tensors are concerned.
        let _ = resized.resize_([4 * COUNT]);
        replaced.set_data(&Tensor::zeros([1], DOUBLE_CPU));
        let [resized, replaced, sum] = pending.map(|pending| pending.wait().unwrap());
        assert_eq!(resized.size(), [4 * COUNT]);
        assert_eq!(replaced.size(), [1]);
        assert_eq!(sum, ones() * 2.0);
        assert_eq!(sum.data_ptr(), untouched.data_ptr());
    }
    // The same without waiting.
    let mut abandoned = ones();
    drop(group.all_reduce_async(abandoned.shallow_clone(), ReduceOp::Sum).unwrap());
    let _ = abandoned.resize_([4 * COUNT]);
    group.barrier().unwrap();
}

#[run_by(on_ranks_with_each_transport(3))]
fn a_call_with_a_time_limit_names_the_rank_that_does_not_come(group: &ProcessGroup) {
    group.barrier().unwrap();
    let done = group.new_group(&[0, 1, 2]).unwrap().unwrap();
    if group.rank() < 2 {
        let limited = group.with_timeout(Duration::from_secs(2));
        expect_error(limited.all_reduce(&mut own(group), ReduceOp::Sum), "rank 2");
    }
    // Rank 2 runs until the others have failed. The other group is not affected.
    done.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn an_asynchronous_all_reduce_gives_the_sum_when_waited_for(group: &ProcessGroup) {
    let first = group.all_reduce_async(own(group), ReduceOp::Sum).unwrap();
    let second = group.all_reduce_async(own(group), ReduceOp::Max).unwrap();
    assert_eq!(values(&second.wait().unwrap()), [2.0, 20.0]);
    while !first.is_completed().unwrap() {
        std::thread::yield_now();
    }
    assert_eq!(values(&first.wait().unwrap()), [3.0, 30.0]);
}

#[run_by(on_ranks(2))]
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

#[run_by(on_ranks(3))]
fn a_monitored_barrier_lets_all_through_or_names_the_ranks_that_did_not_come(group: &ProcessGroup) {
    // Waits until ranks 0 and 1 have started, however long that takes, so that they are in time.
    group.monitored_barrier(true).unwrap();
    let done = group.new_group(&[0, 1, 2]).unwrap().unwrap();
    if group.rank() < 2 {
        let error = message(group.with_timeout(Duration::from_secs(4)).monitored_barrier(true));
        let is_named = error.contains("Ranks 2 failed to pass monitoredBarrier");
        assert!(is_named || group.rank() == 1, "{error}");
    }
    done.barrier().unwrap();
}

#[run_by(on_ranks(3))]
fn a_monitored_barrier_may_name_only_the_first_missing_rank(group: &ProcessGroup) {
    group.barrier().unwrap();
    let done = group.new_group(&[0, 1, 2]).unwrap().unwrap();
    if group.rank() == 0 {
        let limited = group.with_timeout(Duration::from_secs(1));
        // Otherwise it names both.
        expect_error(limited.monitored_barrier(false), "Rank 1 failed to pass monitoredBarrier");
    }
    done.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn a_mean_over_ranks_weighs_every_value_the_same(group: &ProcessGroup) {
    let mut mean = AverageMeter::default();
    // The mean of the means, 10 and 1, would be 5.5.
    let (value, count) = [(10.0, 1), (1.0, 4)][group.rank()];
    mean.update(value, count);
    assert_eq!(mean.all_reduce(group).unwrap(), 14.0 / 5.0);
}

#[run_by(on_ranks(2))]
fn ranks_and_tensors_that_do_not_exist_are_refused_before_anything_is_sent(group: &ProcessGroup) {
    let error = group.broadcast(&mut own(group), 2).unwrap_err().to_string();
    assert_eq!(error, "src is rank 2, but must be a rank below the world size, 2");
    let rank = group.rank();
    let expected = format!("dst is rank {rank}, this rank itself, but must be another rank");
    assert_eq!(message(group.send(&own(group), rank)), expected);
    assert!(group.send(&Tensor::new(), 1 - rank).is_err());
    let tagged = group.with_tag(-1).send(&own(group), 1 - rank);
    assert_eq!(message(tagged), "the tag is -1, but must be 0 or more");
    // The group can still be used.
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn a_rank_that_ends_early_is_named_to_the_one_that_waits(group: &ProcessGroup) {
    // After this, all ranks are connected.
    group.barrier().unwrap();
    if group.rank() == 1 {
        // The connections close only when the process ends.
        tch_parallel::exit(0);
    }
    let error = group.all_reduce(&mut own(group), ReduceOp::Sum).unwrap_err().to_string();
    assert!(error.starts_with("rank 0: all_reduce failed: "), "{error}");
    assert!(error.contains("(rank 1 (pid ") && error.ends_with(") has ended)"), "{error}");
}

#[run_by(on_ranks(3))]
fn several_tensors_are_summed_as_one(group: &ProcessGroup) {
    let rank = group.rank() as i64;
    let table = Tensor::arange(6, FLOAT_CPU).view([3, 2]) * rank;
    let mut tensors = [table.tr(), Tensor::zeros([0], FLOAT_CPU), Tensor::from(rank as f32)];
    group.all_reduce_coalesced(&mut tensors, ReduceOp::Sum).unwrap();
    assert_eq!(tensors[0], Tensor::arange(6, FLOAT_CPU).view([3, 2]).tr() * 3);
    assert_eq!(f32::try_from(&tensors[2]).unwrap(), 3.0);
    let complex = Tensor::ones([2], (Kind::ComplexFloat, Device::Cpu));
    let both = vec![Tensor::from(rank as f32), &complex * rank];
    let both = group.all_reduce_coalesced_async(both, ReduceOp::Sum).unwrap().wait().unwrap();
    assert_eq!((f32::try_from(&both[0]).unwrap(), &both[1]), (3.0, &(complex * 3)));
    expect_error(group.all_reduce_coalesced(&mut [], ReduceOp::Sum), "must be one or more");
    let mut kinds = [Tensor::from(1f32), Tensor::from(1i64)];
    let error = group.all_reduce_coalesced(&mut kinds, ReduceOp::Sum);
    expect_error(error, "tensors is of [Float, Int64], but must be one or more, of one kind");
}

#[run_by(on_ranks(3))]
fn several_tensors_are_gathered_as_one(group: &ProcessGroup) {
    let [table, empty] = [[2, 3], [0, 1]].map(|size| Tensor::ones(size, FLOAT_CPU));
    let of = |rank: usize| [&table * rank as i64, empty.copy(), Tensor::from(rank as f32)];
    let gathered = group.all_gather_coalesced(&of(group.rank())).unwrap();
    assert_eq!(gathered, [of(0), of(1), of(2)]);
    assert!(group.all_gather_coalesced(&[]).is_err());
}
