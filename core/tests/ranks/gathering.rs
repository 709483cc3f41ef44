//! Collectives that pass tensors on, and `reduce_scatter`. Each of these tests fails if its collective does nothing.

use crate::prelude::*;

/// The number of a rank and of something on it.
fn number(rank: usize, of: usize) -> f64 {
    (10 * rank + of) as f64
}

fn row(rank: usize, of: usize, length: usize) -> Tensor {
    Tensor::from_slice(&vec![number(rank, of); length])
}

/// One row of this rank for each rank.
fn rows(group: &ProcessGroup) -> Vec<Tensor> {
    (0..group.world_size()).map(|of| row(group.rank(), of, 2)).collect()
}

fn empty(size: &[i64]) -> Tensor {
    Tensor::full(size, -1.0, DOUBLE_CPU)
}

fn firsts(tensors: &[Tensor]) -> Vec<f64> {
    tensors.iter().map(|tensor| values(tensor)[0]).collect()
}

#[run_by(on_ranks_with_each_transport(3))]
fn gather_gives_all_tensors_to_the_destination_alone(group: &ProcessGroup) {
    for dst in 0..3 {
        let own = row(group.rank(), dst, 2);
        let pending = group.gather_async(own.shallow_clone(), dst).unwrap();
        let numbers = [0, 1, 2].map(|rank| number(rank, dst)).to_vec();
        let expected = (group.rank() == dst).then_some(numbers);
        for gathered in [group.gather(&own, dst).unwrap(), pending.wait().unwrap()] {
            assert_eq!(gathered.as_deref().map(firsts), expected);
        }
    }
}

#[run_by(on_ranks_with_each_transport(3))]
fn scatter_gives_each_rank_its_tensor_of_the_source(group: &ProcessGroup) {
    for src in 0..3 {
        let list = (group.rank() == src).then(|| rows(group));
        let mut tensor = empty(&[2]);
        group.scatter(&mut tensor, list.as_deref(), src).unwrap();
        let pending = group.scatter_async(empty(&[2]), list, src).unwrap();
        for tensor in [tensor, pending.wait().unwrap()] {
            assert_eq!(values(&tensor), [number(src, group.rank()); 2]);
        }
    }
}

#[run_by(on_ranks_with_each_transport(2))]
fn scatter_reads_and_writes_views_with_gaps(group: &ProcessGroup) {
    let table = Tensor::arange(4, DOUBLE_CPU).reshape([2, 2]);
    let columns = [0, 1].map(|column| table.select(1, column));
    let target = empty(&[2, 2]);
    let list = (group.rank() == 0).then_some(&columns[..]);
    group.scatter(&mut target.select(1, 1), list, 0).unwrap();
    let own = group.rank() as f64;
    assert_eq!(values(&target), [-1.0, own, -1.0, 2.0 + own]);
}

#[run_by(on_ranks_with_each_transport(3))]
fn all_gather_into_tensor_joins_or_stacks_the_tensors_of_all_ranks(group: &ProcessGroup) {
    let own = row(group.rank(), 1, 2);
    let expected = [1.0, 1.0, 11.0, 11.0, 21.0, 21.0];
    for size in [&[6][..], &[3, 2]] {
        let mut output = empty(size);
        group.all_gather_into_tensor(&mut output, &own).unwrap();
        assert_eq!(values(&output), expected);
    }
    let pending = group.all_gather_into_tensor_async(empty(&[6]), own).unwrap();
    assert_eq!(values(&pending.wait().unwrap()), expected);
    let mut numbers = empty(&[3]);
    group.all_gather_into_tensor(&mut numbers, &Tensor::from(number(group.rank(), 0))).unwrap();
    assert_eq!(values(&numbers), [0.0, 10.0, 20.0]);
}

#[run_by(on_ranks_with_each_transport(3))]
fn reduce_scatter_gives_each_rank_its_part_of_the_sum(group: &ProcessGroup) {
    let rank = group.rank();
    let expected = [30.0 + 3.0 * rank as f64; 2];
    assert_eq!(values(&group.reduce_scatter(&rows(group), ReduceOp::Sum).unwrap()), expected);
    let pending = group.reduce_scatter_async(rows(group), ReduceOp::Max).unwrap();
    assert_eq!(values(&pending.wait().unwrap()), [number(2, rank); 2]);
    for whole in [Tensor::cat(&rows(group), 0), Tensor::stack(&rows(group), 0)] {
        let mut output = empty(&[2]);
        group.reduce_scatter_tensor(&mut output, &whole, ReduceOp::Sum).unwrap();
        assert_eq!(values(&output), expected);
        let pending = group.reduce_scatter_tensor_async(output, whole, ReduceOp::Avg).unwrap();
        assert_eq!(values(&pending.wait().unwrap()), expected.map(|sum| sum / 3.0));
    }
}

#[run_by(on_ranks_with_each_transport(3))]
fn all_to_all_gives_every_rank_something_else_of_every_rank(group: &ProcessGroup) {
    let rank = group.rank();
    let outputs = || vec![empty(&[2]), empty(&[2]), empty(&[2])];
    let mut received = outputs();
    group.all_to_all(&mut received, &rows(group)).unwrap();
    let pending = group.all_to_all_async(outputs(), rows(group)).unwrap();
    for received in [received, pending.wait().unwrap()] {
        assert_eq!(firsts(&received), [0, 1, 2].map(|from| number(from, rank)));
    }
}

#[run_by(on_ranks_with_each_transport(3))]
fn all_to_all_single_takes_equal_parts_or_parts_of_any_size(group: &ProcessGroup) {
    let rank = group.rank();
    let mut output = empty(&[3, 2]);
    group.all_to_all_single(&mut output, &Tensor::stack(&rows(group), 0), &[], &[]).unwrap();
    assert_eq!(firsts(&output.unbind(0)), [0, 1, 2].map(|from| number(from, rank)));
    // From rank q to rank r, q * r rows: rank 0 has nothing to give and gets nothing.
    let splits: Vec<_> = (0..3).map(|other| (rank * other) as i64).collect();
    let sent = Tensor::cat(&(0..3).map(|to| row(rank, to, rank * to)).collect::<Vec<_>>(), 0);
    let output = empty(&[splits.iter().sum()]);
    let pending = group.all_to_all_single_async(output, sent, &splits, &splits).unwrap();
    let expected: Vec<_> = (0..3).flat_map(|from| vec![number(from, rank); rank * from]).collect();
    assert_eq!(values(&pending.wait().unwrap()), expected);
}

#[run_by(on_ranks_with_each_transport(3))]
fn every_collective_has_an_asynchronous_form(group: &ProcessGroup) {
    let own = || row(group.rank(), 0, 1);
    let broadcast = group.broadcast_async(own(), 1).unwrap();
    let reduced = group.reduce_async(own(), 2, ReduceOp::Sum).unwrap();
    let gathered = group.all_gather_async(own()).unwrap();
    group.barrier_async().unwrap().wait().unwrap();
    assert_eq!(firsts(&gathered.wait().unwrap()), [0.0, 10.0, 20.0]);
    let reduced = reduced.wait().unwrap();
    if group.rank() == 2 {
        assert_eq!(values(&reduced), [30.0]);
    }
    assert_eq!(values(&broadcast.wait().unwrap()), [10.0]);
}

#[run_by(on_ranks_with_each_transport(2))]
fn complex_and_negated_tensors_are_passed_on(group: &ProcessGroup) {
    let rank = group.rank();
    let complex = |of| Tensor::complex(&row(rank, of, 1), &row(rank, of, 1)).conj();
    let real = |tensor: &Tensor| values(&tensor.resolve_conj().view_as_real());
    let expected = |from| [number(from, rank), -number(from, rank)];
    let mut outputs = [complex(7), complex(7)];
    group.all_to_all(&mut outputs, &[complex(0), complex(1)]).unwrap();
    assert_eq!(outputs.each_ref().map(real), [expected(0), expected(1)]);
    let sum = group.reduce_scatter(&[complex(0), complex(1)], ReduceOp::Sum).unwrap();
    assert_eq!(real(&sum)[1], -10.0 - 2.0 * rank as f64);
    let negated = group.gather(&row(rank, 1, 1).internal_neg_view(), 0).unwrap();
    assert!(negated.is_none_or(|all| firsts(&all) == [-1.0, -11.0]));
}

#[run_by(on_ranks(2))]
fn wrong_arguments_are_refused_by_name_and_the_group_goes_on(group: &ProcessGroup) {
    let rank = group.rank();
    let own = || empty(&[2]);
    let both = [own(), own()];
    let sum = ReduceOp::Sum;
    let list_on_the_wrong_rank = (rank != 0).then_some(&both[..]);
    expect_error_start(group.gather(&own(), 2), "dst is rank 2, but");
    expect_error_start(group.scatter(&mut own(), list_on_the_wrong_rank, 0), "scatter_list is ");
    let expected = "scatter_list is a list of 1, but must be one per rank, 2";
    expect_error_start(group.scatter(&mut own(), Some(&both[..1]), rank), expected);
    let expected = "scatter_list is of shape [2] and kind Double, but must be of shape [3]";
    expect_error_start(group.scatter(&mut empty(&[3]), Some(&both), rank), expected);
    expect_error_start(group.reduce_scatter(&both[..1], sum), "input_list is a list of 1,");
    let uneven = group.reduce_scatter(&[own(), empty(&[3])], sum);
    expect_error_start(uneven, "input_list is of shape [");
    let expected = "input is of shape [3] and kind Double, but must be 2 times the output";
    expect_error_start(group.reduce_scatter_tensor(&mut own(), &empty(&[3]), sum), expected);
    let bits = group.reduce_scatter_tensor(&mut own(), &empty(&[4]), ReduceOp::Band);
    expect_error_start(bits, "ReduceOp::Band of a tensor is of Double");
    let expected = "output is of shape [3] and kind Double, but must be 2 times the input";
    expect_error_start(group.all_gather_into_tensor(&mut empty(&[3]), &own()), expected);
    let expected = "output is of shape [4] and kind Float, but must be 2 times the input";
    let mut floats = empty(&[4]).to_kind(Kind::Float);
    expect_error_start(group.all_gather_into_tensor(&mut floats, &own()), expected);
    expect_error_start(group.all_to_all(&mut [own()], &both), "output_list is a list of 1,");
    let expected =
        "output_list is of shape [2] and kind Int64, but must be of shape [2] and kind Double";
    expect_error_start(group.all_to_all(&mut [own(), own().to_kind(Kind::Int64)], &both), expected);
    let expected =
        "input_list is of shape [3] and kind Double, but must be of shape [2] and kind Double";
    expect_error_start(group.all_to_all(&mut [own(), own()], &[own(), empty(&[3])]), expected);
    let longer = group.all_to_all_single(&mut empty(&[3]), &empty(&[2]), &[], &[]);
    expect_error_start(longer, "output is of 3 rows, but");
    let few = group.all_to_all_single(&mut own(), &own(), &[1], &[]);
    expect_error_start(few, "output_split_sizes is a list of 1,");
    let expected =
        "input_split_sizes is [2, 1], but must be the parts of 2 rows, the size of input";
    expect_error_start(group.all_to_all_single(&mut own(), &own(), &[], &[2, 1]), expected);
    let expected = "output is of shape [2], but must be of rows like those of the input";
    expect_error_start(group.all_to_all_single(&mut own(), &empty(&[2, 2]), &[], &[]), expected);
    group.barrier().unwrap();
}

#[run_by(on_ranks(3))]
fn splits_whose_sum_overflows_are_refused(group: &ProcessGroup) {
    // Wrapped around, the sum is 2.
    let splits = [i64::MAX, i64::MAX, 4];
    let result = group.all_to_all_single(&mut empty(&[3]), &empty(&[2]), &[], &splits);
    expect_error_start(result, "input_split_sizes is [");
    group.barrier().unwrap();
}
