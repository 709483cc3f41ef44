//! A join of a model and a sharded optimizer, and what a join does not cover.

use crate::prelude::*;
use crate::weights::{Model, backward, model, own, two_buckets};
use tch_parallel::nn::{BatchNormOptions, sync_batch_norm};

const THROW: JoinOptions =
    JoinOptions { divide_by_initial_world_size: true, throw_on_early_termination: true };

/// Rank 0 owns the matrix, rank 1 the vector, and other ranks nothing.
fn sharded(vs: &VarStore, group: &ProcessGroup) -> ZeroRedundancyOptimizer<SgdOptions> {
    let sgd = Sgd::new(vs, SgdOptions { lr: 0.1, ..Default::default() }).unwrap();
    ZeroRedundancyOptimizer::new(sgd, group)
}

#[run_by(on_ranks(3))]
fn a_model_and_its_optimizer_end_together_if_one_rank_runs_out(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let mut optimizer = sharded(&vs, group);
    let rank = group.rank();
    let mut train = |steps: [i64; 3]| {
        let mut made = 0;
        let joined = join((&model, &mut optimizer), THROW, |(_, optimizer)| {
            (0..steps[rank]).try_for_each(|step| {
                backward(&vs, &model, &own(rank, step))?;
                made += 1;
                optimizer.step()
            })
        });
        assert_eq!(made, 2);
        joined
    };
    let reason = match rank {
        0 => "Rank 0 exhausted all inputs.",
        _ => "Detected at least one rank that exhausted inputs. Throwing across all ranks.",
    };
    assert_eq!(message(train([2, 4, 3])), format!("rank {rank}: join failed: {reason}"));
    // All ranks stopped at the same step, so they can train on.
    train([2, 2, 2]).unwrap();
    optimizer.step().unwrap();
}

#[run_by(on_ranks(2))]
fn a_step_that_leaves_out_a_joinable_is_refused_instead_of_waiting(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let mut optimizer = sharded(&vs, group);
    // Rank 0 makes no step, and follows those of rank 1.
    let passes = 2 * group.rank();
    let joined = join((&model, &mut optimizer), JoinOptions::default(), |(model, _)| {
        (0..passes).try_for_each(|_| backward(&vs, model, &own(0, 0)))
    });
    expect_error(joined, "joinable 1 of join is left out of a step, but must be used once");
}

#[run_by(on_ranks(2))]
fn what_a_join_does_not_cover_is_refused_in_it(group: &ProcessGroup) {
    let (vs, joined) = model(group, two_buckets());
    let (other_vs, other) = model(group, two_buckets());
    let norm_vs = VarStore::new(Device::Cpu);
    let norm = sync_batch_norm(norm_vs.root(), 3, group, BatchNormOptions::default());
    let mut optimizer = sharded(&vs, group);
    let images = Tensor::rand([2, 3, 4, 4], FLOAT_CPU);
    let within: Result<()> = joined.join(JoinOptions::default(), || {
        let refused = "is used within a join that does not cover it";
        expect_error_start(optimizer.step(), &format!("ZeroRedundancyOptimizer {refused}"));
        expect_error_start(norm.f_forward_t(&images, true), &format!("SyncBatchNorm {refused}"));
        let passed = backward(&other_vs, &other, &own(0, 0));
        expect_error_start(passed, &format!("DistributedDataParallel {refused}"));
        norm.f_forward_t(&images, false).map(drop)
    });
    within.unwrap();
    for outer in [JoinOptions::default(), THROW] {
        let within: Result<()> = joined.join(outer, || {
            let again: Result<()> = other.join(JoinOptions::default(), || Ok(()));
            expect_error_start(again, "join is called within a join");
            Err(Error::other("over"))
        });
        expect_error(within, "over");
    }
    // Not outside it, and not if all ranks end together.
    optimizer.step().unwrap();
    let steps = 2 - group.rank();
    let mut made = 0;
    let ended: Result<()> = joined.join(THROW, || {
        (0..steps).try_for_each(|step| {
            let loss = joined.forward(|weights| weights.loss(&own(group.rank(), step as i64)))?;
            joined.backward(&(loss + norm.f_forward_t(&images, true)?.sum(Kind::Float)))?;
            made += 1;
            Ok(())
        })
    });
    expect_error(ended, ["at least one rank that exhausted", "Rank 1"][group.rank()]);
    assert_eq!(made, 1);
}

#[run_by(on_ranks(1))]
fn a_join_takes_each_joinable_of_one_group_once(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let apart = sharded(&vs, &group.new_group(&[0]).unwrap().unwrap());
    let options = JoinOptions::default;
    let none: [&Model; 0] = [];
    let joined: Result<()> = join(none, options(), |_| Ok(()));
    expect_error_start(joined, "the list to join is empty");
    let joined: Result<()> = join([&model, &model], options(), |_| Ok(()));
    expect_error_start(joined, "joinable 1 of join is in a join already");
    let joined: Result<()> = join((&model, apart), options(), |_| Ok(()));
    expect_error_start(joined, "joinable 1 of join is of another process group");
    join([&model], options(), |_| Ok::<_, Error>(())).unwrap();
}

#[run_by(on_ranks(3))]
fn ranks_that_keep_an_early_end_to_themselves_end_all_the_same(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let joined = model.join(THROW, || {
        for step in 0..[1, 3, 3][group.rank()] {
            // The error is dropped; the next step has it again.
            let _ = backward(&vs, &model, &own(group.rank(), step));
        }
        Ok::<_, Error>(())
    });
    let first = if group.rank() == 0 { "Rank 0 exhausted" } else { "Detected at least one" };
    expect_error(joined, first);
}

#[run_by(on_ranks(2))]
fn a_pass_without_gradients_is_followed_too(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    let joined = model.join(JoinOptions::default(), || {
        backward(&vs, &model, &own(group.rank(), 0))?;
        if group.rank() == 1 {
            let _ = no_grad(|| model.forward(|weights| weights.loss(&own(1, 1))))?;
            backward(&vs, &model, &own(1, 2))?;
        }
        Ok::<_, Error>(())
    });
    joined.unwrap();
}

fn expect_refusal_in_a_join(group: &ProcessGroup, expected: &str, options: DdpOptions) {
    let (_vs, model) = ddp(group, options, |path| path.zeros("table", &[5, 2]));
    let joined = model.join(JoinOptions::default(), || match group.rank() {
        0 => Ok(()),
        _ => model.forward(|table| table.shallow_clone()).map(drop),
    });
    expect_error(joined, expected);
}

#[run_by(on_ranks(2))]
fn sparse_gradients_are_refused_in_a_join(group: &ProcessGroup) {
    let options = DdpOptions { sparse_gradients: ["table".into()].into(), ..Default::default() };
    let expected = "sparse_gradients is set for a model within a join, but must be unset: a rank";
    expect_refusal_in_a_join(group, expected, options);
}

#[run_by(on_ranks(2))]
fn a_model_that_skips_buckets_is_refused_in_a_join(group: &ProcessGroup) {
    let mut options = DdpOptions { find_unused_parameters: true, ..Default::default() };
    options.skip_all_reduce_unused_params = true;
    expect_refusal_in_a_join(group, "reduces every bucket, also those that others skip", options);
}
