//! What a sharded model does, and what it refuses.

use crate::batches::vary_weights;
use crate::fully_shard_twins::{Net, batch, shard, squares};
use crate::prelude::*;

/// The same on all ranks.
pub fn sharded(group: &ProcessGroup) -> (VarStore, FsdpModule<Net>) {
    tch::manual_seed(1);
    shard(group, FullyShardOptions::default(), |root, sharding| Net::new(root, Some(sharding)))
}

pub fn loss_of(model: &impl ModuleT, xs: &Tensor) -> Tensor {
    squares(&model.forward_t(xs, true))
}

pub fn gradients(vs: &VarStore) -> BTreeMap<String, Tensor> {
    vs.variables().into_iter().map(|(name, shard)| (name, shard.grad().copy())).collect()
}

#[run_by(on_ranks(2))]
fn a_parameter_that_is_read_outside_its_block_is_an_error_with_its_name(group: &ProcessGroup) {
    let (_vs, model) = sharded(group);
    let block = model.module().blocks[1].unit();
    let weight = &block.module().up.ws;
    let read = || weight.f_sum(Kind::Float);
    expect_error(read(), "blocks.1.up.weight is sharded");
    block.unshard().unwrap();
    assert_eq!(weight.detach(), model.full_state_dict().unwrap()["blocks.1.up.weight"]);
    block.reshard().unwrap();
    assert!(read().is_err());
}

#[run_by(on_ranks(2))]
fn a_step_between_two_passes_is_seen_even_if_the_root_was_left_whole(group: &ProcessGroup) {
    let (vs, model) = sharded(group);
    let xs = batch(group, 0);
    model.backward(&loss_of(&model, &xs)).unwrap();
    // Leaves the root whole.
    let before = no_grad(|| loss_of(&model, &xs));
    sgd(&vs, 0.5).step().unwrap();
    let after = no_grad(|| loss_of(&model, &xs));
    assert_ne!(before, after);
    let weights = model.full_state_dict().unwrap();
    let other = VarStore::new(Device::Cpu);
    let expected = Net::new(&other.root(), None);
    for (name, mut variable) in other.variables() {
        no_grad(|| variable.copy_(&weights[&name]));
    }
    assert_eq!(after, no_grad(|| loss_of(&expected, &xs)));
}

#[run_by(on_ranks(2))]
fn a_block_takes_and_returns_several_tensors_some_without_gradients(group: &ProcessGroup) {
    let weights = |path: nn::Path<'_>| (path.ones("a", &[4]), path.ones("b", &[3]));
    let (vs, block) = shard(group, Default::default(), |root, _| weights(root / "block"));
    let x = Tensor::full([4], 2.0, FLOAT_CPU).set_requires_grad(true);
    let mask = Tensor::ones([4], FLOAT_CPU);
    let run = || {
        let inputs = (x.shallow_clone(), Some(mask.shallow_clone()));
        let pass = block.forward(inputs, |(a, b), (x, mask)| {
            let mask = mask.unwrap();
            assert!(x.requires_grad() && !mask.requires_grad());
            (&x * a * mask, vec![b.square(), x.detach()])
        });
        pass.unwrap()
    };
    // One of the outputs, the other, both.
    for (first, second) in [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0)] {
        let (product, others) = run();
        let parts = [(first, product), (second, &others[0] * 3.0)].into_iter();
        let used = parts.filter(|(factor, _)| *factor > 0.0);
        let loss: Tensor = used.map(|(_, part)| part.sum(Kind::Float)).sum();
        sgd(&vs, 0.5).zero_grad().unwrap();
        block.backward(&loss).unwrap();
        for (name, value) in [("block.a", 2.0 * first), ("block.b", 6.0 * second)] {
            let shard = &vs.variables()[name];
            let gradient = shard.grad();
            match value > 0.0 {
                true => assert_eq!(gradient, shard.full_like(value), "{name}"),
                false => assert!(!gradient.defined() || gradient == shard.zeros_like()),
            }
        }
    }
}

#[run_by(on_ranks(2))]
fn an_output_that_is_a_view_may_be_changed_in_place(group: &ProcessGroup) {
    let options = FullyShardOptions::default();
    let (vs, model) = shard(group, options, |root, _| nn::linear(root, 4, 3, Default::default()));
    // With inputs of three dimensions, a linear layer returns a view.
    let mut ys = model.forward_t(&Tensor::ones([2, 2, 4], FLOAT_CPU), true);
    ys += 1.0;
    model.backward(&ys.sum(Kind::Float)).unwrap();
    vs.variables().values().for_each(|shard| assert_eq!(shard.grad(), shard.full_like(4.0)));
}

#[run_by(on_ranks(1))]
fn a_block_may_have_parameters_outside_its_path(group: &ProcessGroup) {
    let (_vs, model) = shard(group, Default::default(), |root, sharding| {
        sharding.shard(root / "encoder_block", |_| root.ones("fc", &[2]))
    });
    let sum = model.forward((), |block, ()| block.call((), |fc, ()| fc.sum(Kind::Float))).unwrap();
    assert_eq!(f64::try_from(sum).unwrap(), 2.0);
}

#[run_by(on_ranks(2))]
fn one_store_may_hold_several_models(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let models = ["one", "other"].map(|name| {
        let sharding = FullyShard::new(&vs, group, FullyShardOptions::default());
        sharding.root(|root| nn::linear(root / name, 4, 3, Default::default())).unwrap()
    });
    for model in &models {
        let ys = model.forward_t(&Tensor::ones([2, 4], FLOAT_CPU), true);
        model.backward(&ys.sum(Kind::Float)).unwrap();
    }
    vs.variables().values().for_each(|shard| assert_eq!(shard.grad(), shard.full_like(2.0)));
}

#[run_by(on_ranks(2))]
fn two_models_of_one_job_do_not_disturb_each_other(group: &ProcessGroup) {
    let [(vs, one), (other_vs, other)] = [(); 2].map(|()| sharded(group));
    let xs = batch(group, 0);
    one.backward(&(loss_of(&one, &xs) + loss_of(&other, &xs))).unwrap();
    assert_eq!(gradients(&vs), gradients(&other_vs));
}

#[run_by(on_ranks(2))]
fn an_infinite_gradient_on_one_rank_skips_the_step_on_all(group: &ProcessGroup) {
    let (vs, model) = sharded(group);
    let mut optimizer = sgd(&vs, 0.5);
    let mut scaler = GradScaler::new(GradScalerOptions::default()).unwrap();
    let mut made = Vec::new();
    for is_infinite in [false, true] {
        optimizer.zero_grad().unwrap();
        model.backward(&scaler.scale(&loss_of(&model, &batch(group, 0))).unwrap()).unwrap();
        if is_infinite && group.rank() == 1 {
            let _ = vs.variables()["head.weight"].grad().fill_(f64::INFINITY);
        }
        made.push(scaler.step(&mut optimizer).unwrap());
        scaler.update().unwrap();
    }
    assert_eq!(made, [true, false]);
    assert_eq!(scaler.get_scale().unwrap(), 32768.0);
}

#[run_by(on_ranks(3))]
fn whole_weights_go_into_a_sharded_model_and_out_of_it(group: &ProcessGroup) {
    let (_vs, model) = sharded(group);
    let other = VarStore::new(Device::Cpu);
    let _ = Net::new(&other.root(), None);
    vary_weights(&other);
    let mut weights = other.variables();
    model.load_full_state_dict(&weights).unwrap();
    assert_eq!(model.full_state_dict().unwrap(), weights);
    weights.insert("head.bias".into(), Tensor::zeros([3], FLOAT_CPU));
    let expected = "a dict with head.bias of shape [3], but must be";
    expect_error(model.load_full_state_dict(&weights), expected);
    weights.remove("head.bias");
    expect_error(model.load_full_state_dict(&weights), "a dict without head.bias");
}

#[run_by(on_ranks(2))]
fn whole_weights_include_buffers_and_ignored_parameters(group: &ProcessGroup) {
    let ignored_params = ["scale".to_owned()].into();
    let options = FullyShardOptions { ignored_params, ..Default::default() };
    let (vs, model) = shard(group, options, |root, sharding| {
        let norm = |path: &nn::Path<'_>| nn::batch_norm1d(path, 4, Default::default());
        (sharding.shard(root / "norm", norm), root.ones("scale", &[1]))
    });
    let weights = model.full_state_dict().unwrap();
    assert!(weights.keys().all(|name| vs.variables().contains_key(name)));
    assert_eq!(weights.len(), 5);
    let mut other = weights.into_iter().map(|(name, it)| (name, it + 1)).collect();
    model.load_full_state_dict(&other).unwrap();
    assert_eq!(model.full_state_dict().unwrap(), other);
    other.remove("norm.running_mean");
    expect_error(model.load_full_state_dict(&other), "a dict without norm.running_mean");
}
