//! Collectives whose results have gradients.

use crate::prelude::*;

/// Three rows of rank `rank`, for a job of three ranks.
fn rows(rank: usize) -> Tensor {
    Tensor::arange(6, FLOAT_CPU).view([3, 2]) + 10 * rank as i64
}

/// What rank `rank`'s loss multiplies each of these numbers by.
fn weights(rank: usize, like: &Tensor) -> Tensor {
    let numbers = Tensor::arange(like.numel() as i64, FLOAT_CPU).view_as(like);
    (numbers + 1) * (rank as i64 + 1)
}

/// A collective's results and its input's gradient, where each rank's loss is the sum of the results by their weights.
fn run(rank: usize, collective: impl Fn(&Tensor) -> Result<Vec<Tensor>>) -> (Vec<Tensor>, Tensor) {
    let own = rows(rank).set_requires_grad(true);
    let results = collective(&own).unwrap();
    let loss = |result: &Tensor| (result * weights(rank, result)).sum(Kind::Float);
    results.iter().map(loss).sum::<Tensor>().backward();
    (results.iter().map(Tensor::detach).collect(), own.grad())
}

fn sum(of: impl Fn(usize) -> Tensor) -> Tensor {
    (0..3).map(of).sum()
}

#[run_by(on_ranks(3))]
fn what_all_ranks_get_has_the_sum_of_their_gradients(group: &ProcessGroup) {
    let rank = group.rank();
    let of_all = sum(|rank| weights(rank, &rows(0)));
    let summed = run(rank, |own| Ok(vec![functional::all_reduce(own, ReduceOp::Sum, group)?]));
    assert_eq!(summed, (vec![sum(rows)], of_all.copy()));
    let gathered = run(rank, |own| functional::all_gather(own, group));
    assert_eq!(gathered, (Vec::from([0, 1, 2].map(rows)), of_all.copy()));
    // Only the source of a broadcast has a gradient.
    let gradient = if rank == 1 { of_all } else { of_all.zeros_like() };
    let copied = run(rank, |own| Ok(vec![functional::broadcast(own, 1, group)?]));
    assert_eq!(copied, (vec![rows(1)], gradient));
    // A loss that uses only what another rank has sent.
    let own = rows(rank).set_requires_grad(true);
    functional::all_gather(&own, group).unwrap()[(rank + 1) % 3].sum(Kind::Float).backward();
    assert_eq!(own.grad(), own.ones_like());
}

#[run_by(on_ranks(3))]
fn a_part_for_another_rank_has_that_ranks_gradient(group: &ProcessGroup) {
    let rank = group.rank();
    let expected = Tensor::stack(&[0, 1, 2].map(|rank| weights(rank, &rows(0).get(0))), 0);
    let reduce_scatter = |parts: &[Tensor]| functional::reduce_scatter(parts, ReduceOp::Sum, group);
    let (results, gradient) = run(rank, |own| Ok(vec![reduce_scatter(&own.unbind(0))?]));
    assert_eq!((&results[0], &gradient), (&sum(rows).get(rank as i64), &expected));
    let (results, gradient) = run(rank, |own| functional::all_to_all(&own.unbind(0), group));
    assert_eq!(results, [0, 1, 2].map(|other| rows(other).get(rank as i64)));
    assert_eq!(gradient, expected);
    let only_on_1 = |tensor: Tensor| if rank == 1 { tensor } else { tensor.zeros_like() };
    let scattered = run(rank, |own| Ok(vec![functional::scatter(&own.unbind(0), 1, group)?]));
    assert_eq!(scattered, (vec![rows(1).get(rank as i64)], only_on_1(expected)));
}

#[run_by(on_ranks(3))]
fn every_rank_gets_the_gradient_of_the_result_on_one(group: &ProcessGroup) {
    let only_on_1 = |tensor: Tensor| if group.rank() == 1 { tensor } else { tensor.zeros_like() };
    let gathered = run(group.rank(), |own| functional::gather(own, 1, group));
    let of_rank_1 = weights(1, &rows(0));
    let expected = Vec::from([0, 1, 2].map(|rank| only_on_1(rows(rank))));
    assert_eq!(gathered, (expected, of_rank_1.copy()));
    let reduce = |own: &Tensor| Ok(vec![functional::reduce(own, 1, ReduceOp::Sum, group)?]);
    let (mut results, gradient) = run(group.rank(), reduce);
    assert_eq!((only_on_1(results.remove(0)), gradient), (only_on_1(sum(rows)), of_rank_1));
}

#[run_by(on_ranks(2))]
fn parts_of_different_sizes_come_back_as_gradients_of_these_sizes(group: &ProcessGroup) {
    let rank = group.rank();
    // Rank 0 sends one row and keeps two; rank 1 sends three.
    let (output, input) = ([[2, 3], [1, 0]][rank], [[2, 1], [3, 0]][rank]);
    let (results, gradient) =
        run(rank, |own| Ok(vec![functional::all_to_all_single(own, &output, &input, group)?]));
    let (kept, sent) = (rows(0).narrow(0, 0, 2), rows(0).narrow(0, 2, 1));
    let (at_0, at_1) = (weights(0, &Tensor::zeros([5, 2], FLOAT_CPU)), weights(1, &sent));
    assert_eq!(results[0], if rank == 0 { Tensor::cat(&[kept, rows(1)], 0) } else { sent });
    let expected = [Tensor::cat(&[at_0.narrow(0, 0, 2), at_1], 0), at_0.narrow(0, 2, 3)];
    assert_eq!(gradient, expected[rank]);
}

#[run_by(on_ranks(2))]
fn equal_parts_that_come_back_in_others_have_gradients_of_their_own_size(group: &ProcessGroup) {
    // Rank 0 has 2 rows, rank 1 has 4, each in halves.
    let rows = 2 + 2 * group.rank() as i64;
    let own = Tensor::ones([rows, 3], FLOAT_CPU).set_requires_grad(true);
    let received = functional::all_to_all_single(&own, &[1, 2], &[], group).unwrap();
    assert_eq!(received.size(), [3, 3]);
    (received * (group.rank() as i64 + 1)).sum(Kind::Float).backward();
    let halves = [1, 2].map(|number| Tensor::full([rows / 2, 3], number, FLOAT_CPU));
    assert_eq!(own.grad(), Tensor::cat(&halves, 0));
}

#[run_by(on_ranks(2))]
fn what_cannot_be_exchanged_is_refused_before_anything_is(group: &ProcessGroup) {
    let part = rows(0).set_requires_grad(true);
    let few = functional::all_to_all(&[part.shallow_clone()], group);
    expect_error(few, "input_list is a list of 1, but must be one per rank, 2");
    if group.rank() == 0 {
        let uneven = functional::all_to_all(&[part.shallow_clone(), part.get(0)], group);
        expect_error(uneven, "input_list is of shape [2]");
    }
    let square = functional::all_reduce(&(&part * &part), ReduceOp::Sum, group).unwrap();
    let gradient = Tensor::f_run_backward(&[square.sum(Kind::Float)], &[&part], true, true);
    expect_error(gradient, "`create_graph` is set");
    group.barrier().unwrap();
}

#[run_by(on_ranks(2))]
fn without_a_gradient_nothing_is_exchanged_in_a_backward_pass(group: &ProcessGroup) {
    let sum = functional::all_reduce(&rows(0), ReduceOp::Sum, group).unwrap();
    assert!(!sum.requires_grad());
    let weight = rows(1).set_requires_grad(true);
    if group.rank() == 0 {
        (sum * &weight).sum(Kind::Float).backward();
        assert_eq!(weight.grad(), rows(0) * 2);
    }
    let weight = no_grad(|| functional::all_reduce(&weight, ReduceOp::Sum, group)).unwrap();
    assert!(!weight.requires_grad());
}

#[run_by(on_ranks(2))]
fn a_rank_that_is_gone_fails_the_backward_pass_of_the_others(group: &ProcessGroup) {
    let own = rows(0).set_requires_grad(true);
    let sum = functional::all_reduce(&own, ReduceOp::Sum, group).unwrap();
    if group.rank() == 0 {
        expect_error(sum.sum(Kind::Float).f_backward(), "all_reduce failed");
    }
}
