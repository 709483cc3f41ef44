//! What a sharded model refuses, and how it goes on after a pass that failed.

use crate::fully_shard::{gradients, loss_of, sharded};
use crate::fully_shard_twins::{Net, batch, squares};
use crate::prelude::*;

/// A loss whose backward pass fails in the first block, after the head has its gradient.
fn broken_loss(model: &FsdpModule<Net>, xs: &Tensor) -> Tensor {
    let pass = model.forward(xs.shallow_clone(), |net, xs| {
        let first = net.first(&xs).sigmoid();
        let loss = squares(&net.head.forward_t(&first, true));
        // The sigmoid's derivative needs its result.
        let _ = no_grad(|| first.shallow_clone().fill_(1.0));
        loss
    });
    pass.unwrap()
}

#[run_by(on_ranks(2))]
fn after_a_backward_pass_that_fails_the_model_is_as_before(group: &ProcessGroup) {
    let [(vs, model), (other, fresh)] = [(); 2].map(|()| sharded(group));
    let xs = batch(group, 0);
    fresh.backward(&loss_of(&fresh, &xs)).unwrap();
    expect_error(model.backward(&broken_loss(&model, &xs)), "modified by an inplace operation");
    assert!(model.module().head.ws.f_sum(Kind::Float).is_err());
    model.backward(&loss_of(&model, &xs)).unwrap();
    assert_eq!(gradients(&vs), gradients(&other));
}

#[run_by(on_ranks(2))]
fn a_failed_pass_that_another_model_has_started_leaves_nothing_behind(group: &ProcessGroup) {
    let [(vs, model), (_vs, started), (other, fresh)] = [(); 3].map(|()| sharded(group));
    let xs = batch(group, 0);
    fresh.backward(&loss_of(&fresh, &xs)).unwrap();
    assert!(started.backward(&(broken_loss(&model, &xs) + loss_of(&started, &xs))).is_err());
    model.backward(&loss_of(&model, &xs)).unwrap();
    assert_eq!(gradients(&vs), gradients(&other));
}

#[run_by(on_ranks(1))]
fn a_panic_in_a_checkpointed_block_leaves_gradients_on_and_the_generator_as_it_was(
    _: &ProcessGroup,
) {
    let vs = VarStore::new(Device::Cpu);
    let block = CheckpointWrapper::new(nn::linear(vs.root(), 4, 4, Default::default()));
    let pass = |failing_pass| {
        let pass = AtomicUsize::new(0);
        block.call(Tensor::ones([2, 4], FLOAT_CPU), move |block, xs| {
            let ys = block.forward(&xs).dropout(0.5, true);
            assert!(pass.fetch_add(1, Ordering::Relaxed) != failing_pass, "it fails");
            ys
        })
    };
    assert!(panics(|| pass(0)));
    let [expected, drawn] = [2, 1].map(|failing_pass| {
        tch::manual_seed(1);
        let loss = pass(failing_pass).sum(Kind::Float);
        assert_eq!(loss.f_backward().is_err(), failing_pass == 1);
        Tensor::rand([1], FLOAT_CPU)
    });
    assert_eq!(drawn, expected);
}

#[run_by(on_ranks(2))]
fn what_would_be_silently_wrong_with_shards_is_refused(group: &ProcessGroup) {
    let (mut vs, model) = sharded(group);
    model.backward(&loss_of(&model, &batch(group, 0))).unwrap();
    let step = ZeroRedundancyOptimizer::new(sgd(&vs, 0.5), group).step();
    expect_error(step, ", which FullyShard has sharded");
    vs.double();
    let expected = "is another tensor than the shard that FullyShard made";
    expect_error(model.f_forward_t(&batch(group, 0), true), expected);

    let scalar: fn(&nn::Path<'_>) -> Vec<Tensor> = |path| vec![path.ones("scale", &[])];
    let mixed = |path: &nn::Path<'_>| {
        let first = path.ones("a", &[2]);
        path.clone().bfloat16();
        vec![first, path.ones("b", &[2])]
    };
    let refused = "the parameter of.scale is a scalar";
    for (block, expected) in [(scalar, refused), (mixed, "of.a of BFloat16 and of.b of Float")] {
        let other = VarStore::new(Device::Cpu);
        let sharding = FullyShard::new(&other, group, FullyShardOptions::default());
        expect_error(sharding.root(|root| sharding.shard(root / "of", block)), expected);
        let alone = sharding
            .shard(other.root() / "alone", |path| nn::linear(path, 5, 5, Default::default()));
        let expected = "is without a root, around the block \"alone\"";
        expect_error(alone.f_forward_t(&batch(group, 0), true), expected);
    }
    for ranks in [0, 3] {
        let other = VarStore::new(Device::Cpu);
        let options =
            FullyShardOptions { reshard_after_forward: ranks.into(), ..Default::default() };
        let model = FullyShard::new(&other, group, options).root(|path| path.ones("a", &[2]));
        let expected = format!("reshard_after_forward is {ranks}, but must be a divisor of 2");
        expect_error(model, &expected);
    }
    let (_third, inside) = sharded(group);
    let around = CheckpointWrapper::new(inside);
    let again = around.forward_t(&batch(group, 0), true).sum(Kind::Float).f_backward();
    expect_error(again, "inside a CheckpointWrapper, around");
    // The last, since the ranks tell each other of it and leave.
    expect_error(DistributedDataParallel::new((), &vs, group), ", which FullyShard has sharded");
}

#[run_by(on_ranks(2))]
fn an_error_in_a_block_is_returned_by_the_whole_model(group: &ProcessGroup) {
    let (_vs, model) = sharded(group);
    if group.rank() == 0 {
        let error = model.f_forward_t(&batch(group, 0), true).unwrap_err();
        assert!(matches!(error, Error::Collective { .. }), "{error}");
    } else {
        let mut instead = Tensor::ones([1], FLOAT_CPU);
        assert!(group.all_reduce(&mut instead, ReduceOp::Sum).is_err());
    }
}
