//! When the ranks of a sharded model exchange something. After PyTorch's tests; see `fully_shard_mirrored.md`.

use crate::fully_shard_twins::{Net, Twins, batch, each_way, shard, squares};
use crate::prelude::*;
use tch_parallel::profiler::profile;

/// What is exchanged during `body`, in order: G if parameters are gathered, R if gradients are reduced.
fn exchanges<R>(body: impl FnOnce() -> R) -> (String, R) {
    traced(false, body)
}

/// The same; `with_blocks` shows the block's number instead of G, and leaves the root out.
fn traced<R>(with_blocks: bool, body: impl FnOnce() -> R) -> (String, R) {
    let (names, result) = events(body);
    let letters = names.iter().filter_map(|name| match name.split_once(" (blocks.") {
        // The number of the block.
        Some(("FSDP::all_gather", block)) if with_blocks => block.chars().next(),
        None if name == "shared_memory:all_gather" && !with_blocks => Some('G'),
        None if name == "shared_memory:reduce_scatter" => Some('R'),
        _ => None,
    });
    (letters.collect(), result)
}

/// The names of what a trace of `body` shows, in order.
fn events<R>(body: impl FnOnce() -> R) -> (Vec<String>, R) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    let mut result = None;
    profile(&path, || result = Some(body())).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let named = events.filter_map(|it| Some((it["ts"].as_f64()?, it["name"].as_str()?.to_owned())));
    let mut events: Vec<_> = named.collect();
    events.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    (events.into_iter().map(|(_, name)| name).collect(), result.unwrap())
}

/// As `FSDPState._root_post_backward_final_callback` does.
#[run_by(on_ranks(2))]
fn blocks_whose_inputs_need_no_gradients_are_reduced_from_the_outside_in(group: &ProcessGroup) {
    let layer = |path: nn::Path<'_>| nn::linear(path, 4, 4, Default::default());
    let (_vs, model) = shard(group, Default::default(), |root, sharding| {
        sharding.shard(root / "outer", |path| {
            (sharding.shard(path / "inner", |path| layer(path / "a")), layer(path / "b"))
        })
    });
    let pass = |outer: &FsdpModule<(FsdpModule<nn::Linear>, nn::Linear)>, xs| {
        outer.call(xs, |(inner, own), xs: Tensor| inner.forward_t(&xs, true) + own.forward(&xs))
    };
    let sum = model.forward(Tensor::ones([2, 4], FLOAT_CPU), pass).unwrap().sum(Kind::Float);
    let (mut names, ()) = events(|| model.backward(&sum).unwrap());
    names.retain(|name| name.starts_with("FSDP::post_backward_reduce"));
    let reduced = ["outer", "outer.inner"].map(|it| format!("FSDP::post_backward_reduce ({it})"));
    assert_eq!(names, reduced);
}

#[run_by(on_ranks(2))]
fn blocks_without_parameters_of_their_own_hold_nothing_up(group: &ProcessGroup) {
    let linear = |path: &nn::Path<'_>| nn::linear(path, 4, 4, Default::default());
    let (_vs, model) = shard(group, Default::default(), |root, sharding| {
        let inner = |path: nn::Path<'_>, name| sharding.shard(path / name, linear);
        [0, 1].map(|i| {
            sharding.shard(root / "blocks" / i, |path| ["a", "b"].map(|it| inner(path / it, "c")))
        })
    });
    let pass = |blocks: &[FsdpModule<[FsdpModule<nn::Linear>; 2]>; 2], xs: Tensor| {
        let inside = |layers: &[FsdpModule<nn::Linear>; 2], xs: Tensor| {
            layers.iter().fold(xs, |xs, layer| layer.forward_t(&xs, true))
        };
        squares(&blocks.iter().fold(xs, |xs, block| block.call(xs, inside)))
    };
    let xs = Tensor::ones([2, 4], FLOAT_CPU);
    let (forward, loss) = exchanges(|| model.forward(xs, pass).unwrap());
    let (backward, ()) = exchanges(|| model.backward(&loss).unwrap());
    // As traced in Python.
    assert_eq!([forward.as_str(), &backward], ["GGGG", "GGRGRGRR"]);
}

fn exchanges_of(twins: &Twins<Net>, loss: impl Fn(&Net) -> Tensor) -> [String; 2] {
    let (forward, sharded) = exchanges(|| twins.sharded.forward((), |net, ()| loss(net)).unwrap());
    let (backward, ()) = exchanges(|| twins.backward(&sharded, &loss(&twins.whole)));
    [forward, backward]
}

#[run_by(on_ranks(2))]
fn the_next_block_is_gathered_before_the_gradients_of_the_last_are_reduced(group: &ProcessGroup) {
    // The root stays whole; then nothing does; then everything. As traced in Python.
    let expected = [
        ["GGGG", "GGRGRRR", "GGGGGGG", "GGGGGRGRRR", "GGGRRR"],
        ["GGGG", "GGGRGRRR", "GGGGGGGG", "GGGGGGRGRRR", "GGGGRRR"],
        ["GGGG", "RRRR", "GGGG", "GGRGRRR", "RRR"],
    ];
    for (mut twins, expected) in each_way(group, Net::new).into_iter().zip(expected) {
        let [one, other] = [0, 1].map(|step| batch(group, step));
        for _ in 0..2 {
            assert_eq!(exchanges_of(&twins, |net| net.loss(&one)), expected[..2]);
            twins.step();
        }
        // Two forward passes before one backward pass.
        let run = |xs: &Tensor| twins.sharded.forward((), |net, ()| net.loss(xs)).unwrap();
        let (forward, sum) = exchanges(|| run(&one) + run(&other));
        let whole = twins.whole.loss(&one) + twins.whole.loss(&other);
        let (backward, ()) = exchanges(|| twins.backward(&sum, &whole));
        assert_eq!([forward, backward], expected[2..4]);
        twins.step();
        // The last block's output is not used: it is gathered in vain, but not reduced.
        let unused = |net: &Net| {
            let first = net.first(&one);
            let (used, _unused) = (net.block(1, &first), net.block(2, &first));
            squares(&used)
        };
        let [_, backward] = exchanges_of(&twins, unused);
        assert_eq!(backward, expected[4]);
        twins.step();
        let loss = twins.sharded.forward((), |net, ()| net.loss(&one)).unwrap();
        twins.sharded.reshard().unwrap();
        twins.sharded.module().blocks.iter().for_each(|block| block.unit().reshard().unwrap());
        let (backward, ()) = exchanges(|| twins.backward(&loss, &twins.whole.loss(&one)));
        assert_eq!(backward, "GGGRGRRR");
    }
}

#[run_by(on_ranks(4))]
fn after_the_forward_pass_parameters_come_from_as_many_ranks_as_the_options_say(
    group: &ProcessGroup,
) {
    let options = FullyShardOptions { reshard_after_forward: 2.into(), ..Default::default() };
    let mut twins = Twins::new(group, options, Net::new);
    let xs = batch(group, 0);
    let pass = |twins: &Twins<Net>| twins.sharded.forward((), |net, ()| net.loss(&xs)).unwrap();
    for _ in 0..2 {
        let (forward, loss) = traced(true, || pass(&twins));
        let (backward, ()) = traced(true, || twins.backward(&loss, &twins.whole.loss(&xs)));
        assert_eq!([forward, backward], ["012", "21R0RRR"]);
        // Leaves parts of the weights that the step changes.
        let _ = no_grad(|| pass(&twins));
        twins.step();
    }
    let loss = pass(&twins);
    // Two ranks gather a block while the others wait, then the others.
    for first in [0, 2] {
        if (first..first + 2).contains(&group.rank()) {
            twins.sharded.module().blocks[0].unit().unshard().unwrap();
        }
        group.barrier().unwrap();
    }
    twins.backward(&loss, &twins.whole.loss(&xs));
    twins.step();
}

#[run_by(on_ranks(2))]
fn gradients_accumulate_in_the_units_that_do_not_exchange_them(group: &ProcessGroup) {
    let (all, root) = ([true; 4], [true, false, false, false]);
    let some = [false, true, true, false];
    // The units that exchange no gradients before the last of three passes, the root first;
    // whether parameters are freed after forward and backward passes; the expected exchanges.
    let cases = [
        (all, true, true, 24, 4),
        (all, false, true, 12, 4),
        (all, false, false, 4, 4),
        (root, true, true, 24, 10),
        (root, false, true, 12, 10),
        (root, false, false, 10, 10),
        (some, true, true, 24, 8),
        (some, false, true, 12, 8),
    ];
    for (waits, after_forward, after_backward, gathers, reductions) in cases {
        let [_, resharded, kept] = each_way(group, Net::new);
        let mut twins = if after_forward { resharded } else { kept };
        let (found, ()) = exchanges(|| {
            for microbatch in 0..3 {
                let (model, is_last) = (&twins.sharded, microbatch == 2);
                let syncs = waits.map(|waits| is_last || !waits);
                let frees = waits.map(|waits| is_last || !waits || after_backward);
                model.set_requires_gradient_sync(syncs[0]);
                model.set_reshard_after_backward(frees[0]);
                for (i, block) in model.module().blocks.iter().enumerate() {
                    block.unit().set_requires_gradient_sync(syncs[i + 1]);
                    block.unit().set_reshard_after_backward(frees[i + 1]);
                }
                twins.pass(&batch(group, microbatch), Net::loss);
            }
        });
        let count = |letter: char| found.matches(letter).count();
        assert_eq!((count('G'), count('R')), (gathers, reductions), "{waits:?}: {found}");
        twins.step();
    }
}

#[run_by(on_ranks(2))]
fn blocks_are_gathered_ahead_as_the_user_chooses(group: &ProcessGroup) {
    let [mut twins, ..] = each_way(group, Net::new);
    let xs = batch(group, 0);
    for (chosen, expected) in [(false, ["012", "21R0RRR"]), (true, ["021", "201RRRR"])] {
        if chosen {
            let [zero, _, two] = &twins.sharded.module().blocks[..] else { unreachable!() };
            let one = twins.sharded.module().blocks[1].unit();
            zero.unit().set_modules_to_forward_prefetch(&[two.unit()]);
            two.unit().set_modules_to_backward_prefetch(&[zero.unit(), one]);
        }
        let pass = || twins.sharded.forward((), |net, ()| net.loss(&xs)).unwrap();
        let (forward, loss) = traced(true, pass);
        let backward = || twins.backward(&loss, &twins.whole.loss(&xs));
        assert_eq!([forward, traced(true, backward).0], expected);
        twins.step();
    }
}

#[run_by(on_ranks(2))]
fn what_was_gathered_ahead_before_the_weights_changed_is_gathered_again(group: &ProcessGroup) {
    let [twins, ..] = each_way(group, Net::new);
    let (model, xs) = (&twins.sharded, batch(group, 0));
    let [zero, _, two] = &model.module().blocks[..] else { unreachable!() };
    // For the next evaluation.
    two.unit().set_modules_to_forward_prefetch(&[zero.unit()]);
    let loss = || no_grad(|| model.forward((), |net, ()| net.loss(&xs)).unwrap());
    let before = loss();
    let zeros = |(name, it): (String, Tensor)| (name, it.zeros_like());
    let weights = model.full_state_dict().unwrap().into_iter().map(zeros).collect();
    model.load_full_state_dict(&weights).unwrap();
    let after = loss().double_value(&[]);
    assert!(after == 0.0 && before.double_value(&[]) > 0.0, "{after}");
}
