//! What a sharded model's units hold: parameters, kinds, memory. After PyTorch's tests; see `fully_shard_mirrored.md`.

use crate::fully_shard_twins::{Net, batch, each_way, shard, squares};
use crate::prelude::*;

fn is_whole(layer: &nn::Linear) -> bool {
    layer.ws.f_sum(Kind::Float).is_ok()
}

fn linear(path: &nn::Path<'_>) -> nn::Linear {
    nn::linear(path, 5, 5, Default::default())
}

#[run_by(on_ranks(2))]
fn a_unit_has_the_parameters_of_its_block_that_no_inner_unit_has(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let sharding = FullyShard::new(&vs, group, FullyShardOptions::default());
    let outer = |p: &nn::Path<'_>| (sharding.shard(p / "inner", linear), linear(&(p / "own")));
    // The root has none.
    let model = sharding.root(|root| sharding.shard(root / "outer", outer)).unwrap();
    let (inner, own) = model.module().module();
    let wholes = || [is_whole(own), is_whole(inner.module())];
    model.unshard().unwrap();
    assert_eq!(wholes(), [false, false]);
    model.module().unshard().unwrap();
    assert_eq!(wholes(), [true, false]);
    inner.unshard().unwrap();
    assert_eq!(wholes(), [true, true]);
    let mut names: Vec<_> = inner.full_state_dict().unwrap().into_keys().collect();
    names.sort();
    assert_eq!(names, ["outer.inner.bias", "outer.inner.weight"]);
    assert_eq!(model.full_state_dict().unwrap().len(), 4);
}

#[run_by(on_ranks(2))]
fn a_block_whose_output_the_next_one_ignores_has_gradients_of_zeros(group: &ProcessGroup) {
    let (vs, model) = shard(group, Default::default(), |root, sharding| {
        ["used", "ignored", "last"].map(|name| sharding.shard(root / name, linear))
    });
    let pass = |[used, ignored, last]: &[FsdpModule<nn::Linear>; 3], xs: Tensor| {
        let both = (used.forward_t(&xs, true), ignored.forward_t(&xs, true));
        squares(&last.call(both, |last, (used, _)| last.forward(&used)))
    };
    model.backward(&model.forward(batch(group, 0), pass).unwrap()).unwrap();
    // As in PyTorch, where weight decay and momentum then move its weights.
    let gradient = vs.variables()["ignored.weight"].grad();
    assert_eq!(gradient, gradient.zeros_like());
}

#[run_by(on_ranks(2))]
fn parameters_are_whole_after_a_pass_as_the_options_say(group: &ProcessGroup) {
    let expected = [[true, false], [false, false], [true, true]];
    for (twins, expected) in each_way(group, Net::new).into_iter().zip(expected) {
        let (model, net) = (&twins.sharded, twins.sharded.module());
        let wholes = || [&net.head, &net.blocks[1].unit().module().up].map(is_whole);
        let pass = || model.forward(batch(group, 0), |net, xs| net.loss(&xs)).unwrap();
        let before = model.full_state_dict().unwrap();
        let _ = pass();
        assert_eq!(wholes(), expected);
        assert_eq!(model.full_state_dict().unwrap(), before);
        model.reshard().unwrap();
        net.blocks[1].unit().reshard().unwrap();
        assert_eq!(wholes(), [false, false]);
        model.backward(&pass()).unwrap();
        assert_eq!(wholes(), [false, false]);
        for (block, expected) in [(false, [true, false]), (true, [true, true])] {
            model.set_reshard_after_forward(false);
            net.blocks[1].unit().set_reshard_after_forward(!block);
            model.backward(&pass()).unwrap();
            let _ = pass();
            assert_eq!(wholes(), expected);
        }
    }
}

#[run_by(on_ranks(2))]
fn ignored_parameters_stay_whole_and_keep_this_ranks_gradients(group: &ProcessGroup) {
    let ignored_params = ["block.bias".to_owned()].into();
    let options = FullyShardOptions { ignored_params, ..Default::default() };
    let (vs, model) = shard(group, options, |root, it| it.shard(root / "block", linear));
    let [weight, bias] =
        ["block.weight", "block.bias"].map(|it| vs.variables()[it].shallow_clone());
    let other = VarStore::new(Device::Cpu);
    let ignored_params = ["bais".to_owned()].into();
    let options = FullyShardOptions { ignored_params, ..Default::default() };
    let misspelt = FullyShard::new(&other, group, options).root(linear);
    expect_error(misspelt, "is a set with bais, but must be names of variables");
    let factor = (group.rank() + 1) as f64;
    let outputs = model.f_forward_t(&Tensor::ones([3, 5], FLOAT_CPU), true).unwrap();
    model.backward(&(outputs.sum(Kind::Float) * factor)).unwrap();
    assert_eq!(bias.grad(), Tensor::full([5], 3.0 * factor, FLOAT_CPU));
    let rows = [3, 2][group.rank()];
    assert_eq!(weight.grad(), Tensor::full([rows, 5], 4.5, FLOAT_CPU));
}

#[derive(Debug)]
struct Watched(nn::Linear, Arc<Mutex<Vec<Kind>>>);

impl Module for Watched {
    fn forward(&self, xs: &Tensor) -> Tensor {
        self.1.lock().unwrap().push(xs.kind());
        self.0.forward(&xs.to_kind(Kind::BFloat16))
    }
}

#[run_by(on_ranks(2))]
fn a_block_casts_as_its_policy_says_and_again_when_it_is_recomputed(group: &ProcessGroup) {
    let (param_dtype, reduce_dtype) = (Some(Kind::BFloat16), Some(Kind::Float));
    let policy = MixedPrecisionPolicy { param_dtype, reduce_dtype, ..Default::default() };
    let as_it_comes = MixedPrecisionPolicy { cast_forward_inputs: false, ..policy };
    let back = MixedPrecisionPolicy { output_dtype: Some(Kind::Float), ..policy };
    let cases = [
        (policy, Kind::BFloat16, Kind::BFloat16),
        (as_it_comes, Kind::Float, Kind::BFloat16),
        (back, Kind::BFloat16, Kind::Float),
    ];
    for (mp_policy, inside, after) in cases {
        let kinds = Arc::default();
        let watched =
            |path: &nn::Path<'_>| CheckpointWrapper::new(Watched(linear(path), Arc::clone(&kinds)));
        let (mut vs, model) = shard(group, Default::default(), |root, sharding| {
            let lower = sharding.with(FullyShardOptions { mp_policy, ..Default::default() });
            (linear(&(root / "plain")), lower.shard(root / "block", watched))
        });
        let loss = || {
            let pass = model.forward(batch(group, 0), |(plain, block), xs| {
                let output = block.forward_t(&plain.forward(&xs), true);
                assert_eq!(output.kind(), after);
                squares(&output)
            });
            pass.unwrap()
        };
        vs.freeze();
        let _ = no_grad(loss);
        vs.unfreeze();
        model.backward(&loss()).unwrap();
        assert_eq!(*kinds.lock().unwrap(), [inside; 3]);
        assert!(vs.trainable_variables().iter().all(|it| it.grad().kind() == Kind::Float));
    }
}

/// So many and so large that only the blocks' memory matters.
const BLOCKS: usize = 16;
const WIDTH: i64 = 200;

#[run_by(on_ranks(4))]
fn a_training_takes_the_memory_of_the_shards_and_of_a_few_blocks(group: &ProcessGroup) {
    let device = LogicalDevice::Cpu(0);
    let block = 4 * (WIDTH * (WIDTH + 1)) as usize;
    let shards = BLOCKS * block / 4;
    // With how many blocks a rank keeps between the two passes.
    let ways = [(true.into(), 0), (false.into(), BLOCKS), (2.into(), BLOCKS / 2), (4.into(), 0)];
    let layer = |path: &nn::Path<'_>| nn::linear(path, WIDTH, WIDTH, Default::default());
    for (reshard_after_forward, kept) in ways {
        let before = memory_allocated(device).unwrap();
        let now = || memory_allocated(device).unwrap().saturating_sub(before);
        let peak = || max_memory_allocated(device).unwrap() - before;
        reset_peak_memory_stats(device).unwrap();
        let options = FullyShardOptions { reshard_after_forward, ..Default::default() };
        let (vs, model) = shard(group, options, |root, sharding| {
            (0..BLOCKS).fold(nn::seq_t(), |net, i| net.add(sharding.shard(root / i, layer)))
        });
        assert!(peak() < shards + 3 * block, "{} bytes to build it", peak());
        let options = SgdOptions { momentum: 0.9, ..Default::default() };
        let mut optimizer = Sgd::new(&vs, options).unwrap();
        let at_rest = [(); 4].map(|()| {
            reset_peak_memory_stats(device).unwrap();
            let loss = squares(&model.forward_t(&Tensor::ones([2, WIDTH], FLOAT_CPU), true));
            let least = shards + kept * block;
            assert!((least..least + shards + 3 * block).contains(&now()), "{} between", now());
            model.backward(&loss).unwrap();
            optimizer.step().unwrap();
            // Weights, gradients and momentum.
            assert!(peak() < 3 * shards + (kept + 8) * block, "{} bytes to train it", peak());
            drop(loss);
            optimizer.zero_grad().unwrap();
            now()
        });
        assert_eq!(at_rest[1], at_rest[2], "no step leaves more than the one before it");
        drop((vs, model, optimizer));
        assert!(now() < block, "{} bytes are left", now());
    }
}

#[run_by(on_ranks(2))]
fn ranks_with_other_seeds_begin_with_rank_0s_parameters_and_buffers(group: &ProcessGroup) {
    let other = VarStore::new(Device::Cpu);
    tch::manual_seed(1 + group.rank() as i64);
    let options = FullyShardOptions { sync_module_states: true, ..Default::default() };
    let (vs, model) = shard(group, options, |root, sharding| {
        let _ = root.zeros_no_train("mean", &[1]).fill_(group.rank() as f64);
        sharding.shard(root / "block", linear)
    });
    tch::manual_seed(1);
    let expected = linear(&(other.root() / "block"));
    let found = model.full_state_dict().unwrap();
    assert_eq!(found["block.weight"], expected.ws);
    assert_eq!(found["block.bias"], expected.bs.unwrap());
    assert_eq!(vs.variables()["mean"].double_value(&[]), 0.0);
}
