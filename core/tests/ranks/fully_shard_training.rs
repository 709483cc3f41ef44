//! However its blocks are used, a sharded model trains as the whole. After PyTorch's tests: `fully_shard_mirrored.md`.

use crate::fully_shard_twins::{
    Block, Net, Twins, batch, each_way, expect_close, numbers, squares,
};
use crate::prelude::*;

/// Trains layers whose rows cannot be shared evenly. Some of four ranks have none of a bias.
fn train_one_unit(group: &ProcessGroup) {
    for [inputs, hidden, outputs] in [[16, 15, 8], [7, 15, 3], [16, 17, 8]] {
        let mut twins = Twins::new(group, FullyShardOptions::default(), |root, _| {
            let first = nn::linear(root / 0, inputs, hidden, Default::default());
            let second = nn::linear(root / 2, hidden, outputs, Default::default());
            nn::seq().add(first).add_fn(|xs| xs.relu()).add(second)
        });
        for step in 0..3 {
            let xs = numbers(group, step, [4, inputs]);
            twins.pass(&xs, |net, xs| squares(&net.forward(xs)));
            twins.step();
        }
    }
}

#[run_by(on_ranks(4))]
fn a_unit_with_uneven_and_empty_shards_is_trained(group: &ProcessGroup) {
    train_one_unit(group);
}

#[run_by(on_ranks(1))]
fn a_single_rank_trains_the_whole_model(group: &ProcessGroup) {
    train_one_unit(group);
}

#[run_by(on_ranks(2))]
fn blocks_may_be_skipped_or_repeated_and_run_without_the_root(group: &ProcessGroup) {
    for mut twins in each_way(group, Net::new) {
        for step in 0..4 {
            twins.pass(&batch(group, step), |net, xs| {
                let one = net.block(1, &net.first(xs));
                let other = if step == 0 { one.zeros_like() } else { net.block(2, &one) };
                match step {
                    0 | 1 => squares(&one),
                    2 => squares(&(one * other)),
                    _ => squares(&net.block(1, &net.block(1, &other))),
                }
            });
            twins.step();
        }
        let xs = batch(group, 4);
        let of_block = |net: &Net| squares(&net.block(0, &xs));
        twins.backward(&of_block(twins.sharded.module()), &of_block(&twins.whole));
        twins.step();
    }
}

#[run_by(on_ranks(2))]
fn after_a_forward_pass_that_panics_the_next_one_is_as_usual(group: &ProcessGroup) {
    for mut twins in each_way(group, Net::new) {
        let xs = batch(group, 0);
        assert!(panics(|| {
            twins.sharded.forward(xs.shallow_clone(), |net, xs| -> Tensor {
                let _ = net.first(&xs);
                panic!("the model's own")
            })
        }));
        twins.pass(&xs, Net::loss);
        twins.step();
    }
}

/// A layer, and a block whose two layers may run apart.
type Chunked = (nn::Linear, Block<(nn::LayerNorm, nn::Linear)>);

fn chunked(root: &nn::Path<'_>, sharding: Option<&FullyShard<'_>>) -> Chunked {
    let tail = Block::new(&(root / "tail"), sharding, |path| {
        let norm = nn::layer_norm(path / "norm", vec![5], Default::default());
        (norm, nn::linear(path / "head", 5, 3, Default::default()))
    });
    (nn::linear(root / "body", 5, 5, Default::default()), tail)
}

fn upto_the_norm((body, tail): &Chunked, xs: &Tensor) -> Tensor {
    tail.forward(&body.forward(xs), |(norm, _), xs| norm.forward(&xs).tanh())
}

fn loss_of_head((_, tail): &Chunked, hidden: &Tensor) -> Tensor {
    tail.forward(hidden, |(_, head), xs| squares(&head.forward(&xs)))
}

fn hidden(twins: &Twins<Chunked>, xs: &Tensor) -> [Tensor; 2] {
    let own = twins.sharded.forward(xs.shallow_clone(), |net, xs| upto_the_norm(net, &xs));
    [own.unwrap(), upto_the_norm(&twins.whole, xs)]
}

#[run_by(on_ranks(2))]
fn a_layer_of_a_block_may_run_in_chunks_after_the_model(group: &ProcessGroup) {
    for mut twins in each_way(group, chunked) {
        for step in 0..4 {
            // Those of step 2 accumulate without being reduced.
            twins.sharded.set_requires_gradient_sync(step != 2);
            let outputs = hidden(&twins, &batch(group, step));
            let leaves = outputs.each_ref().map(|it| it.detach().set_requires_grad(true));
            for row in 0..3 {
                let [own, other] = leaves.each_ref().map(|it| it.narrow(0, row, 1));
                let own = loss_of_head(twins.sharded.module(), &own);
                twins.backward(&own, &loss_of_head(&twins.whole, &other));
            }
            let [own, other] = [0, 1].map(|i| (&outputs[i] * leaves[i].grad()).sum(Kind::Float));
            twins.backward(&own, &other);
            if step != 2 {
                twins.step();
            }
        }
        // Twice without the head, which gets no gradient.
        let [one, other] = [4, 5].map(|step| hidden(&twins, &batch(group, step)));
        let [own, whole] = [0, 1].map(|i| squares(&(&one[i] + &other[i])));
        twins.backward(&own, &whole);
        twins.step();
    }
}

#[run_by(on_ranks(2))]
fn weights_may_be_used_twice_within_a_unit(group: &ProcessGroup) {
    for mut twins in each_way(group, |root, _| root.randn_standard("words", &[9, 5])) {
        for step in 0..3 {
            let ids = Tensor::arange(4, (Kind::Int64, Device::Cpu));
            twins.pass(&(ids + (step + group.rank() as i64)), |words, ids| {
                let hidden = Tensor::embedding(words, ids, -1, false, false).tanh();
                squares(&hidden.linear(words, None::<&Tensor>))
            });
            twins.step();
        }
    }
}

/// Blocks 1 and 2 in turns, the former also without gradients.
fn loss_of_turns(net: &Net, xs: &Tensor) -> Tensor {
    let turn = |xs: Tensor, _| {
        let xs = net.block(2, &net.block(1, &xs));
        no_grad(|| net.block(1, &xs)) + xs
    };
    squares(&(0..3).fold(net.first(xs), turn))
}

#[run_by(on_ranks(2))]
fn parameters_are_frozen_and_unfrozen_during_a_training(group: &ProcessGroup) {
    // Biases; a block between two others, then all; all but a block.
    let trained: [fn(i64, &str) -> bool; 3] = [
        |_, name| name.ends_with("bias"),
        |step, name| step == 2 || name.starts_with("blocks.1"),
        |_, name| !name.starts_with("blocks.2"),
    ];
    for is_trained in trained {
        let all = each_way(group, |root, sharding| {
            let net = Net::new(root, sharding);
            let _ = net.head.ws.set_requires_grad(is_trained(0, "head.weight"));
            net
        });
        for mut twins in all {
            for step in 0..3 {
                let variables = [&twins.vs, &twins.other].map(|vs| vs.variables());
                for (name, variable) in variables.iter().flatten() {
                    let _ = variable.set_requires_grad(is_trained(step, name));
                }
                for loss in [Net::loss, loss_of_turns] {
                    let xs = batch(group, step);
                    twins.pass(&xs, loss);
                    // Leaves some parameters whole.
                    let again = || twins.sharded.forward((), |net, ()| loss(net, &xs));
                    let again = no_grad(again).unwrap();
                    expect_close("loss", &again, &no_grad(|| loss(&twins.whole, &xs)));
                }
                twins.step();
            }
        }
    }
}
