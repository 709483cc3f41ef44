//! Any number of ranks computes the same bits for as many virtual ranks.

use crate::prelude::*;
use tch_parallel::nn::*;

fn options(virtual_ranks: usize) -> DdpOptions {
    let virtual_ranks = Some(virtual_ranks);
    DdpOptions { virtual_ranks, bucket_cap_mb: Some(1e-4), ..Default::default() }
}

/// What this rank has after a training with 16 bits and clipped gradients, which add up over `accumulated` steps.
fn trained<N: Send>(
    (group, virtual_ranks, accumulated): (&ProcessGroup, usize, i64),
    in_step: bool,
    build: impl Fn(nn::Path<'_>) -> N,
    forward: fn(&N, &Tensor) -> Tensor,
) -> Saved {
    let vs = VarStore::new(Device::Cpu);
    let net = build(vs.root());
    fill(&vs, 0);
    let ddp = options(virtual_ranks);
    let model = DistributedDataParallel::with_options(net, &vs, group, ddp).unwrap();
    let mut optimizer = Adam::new(&vs, AdamOptions { lr: 0.1, ..Default::default() }).unwrap();
    let shard = tch_parallel::data::Shard::from(group).with_virtual_ranks(virtual_ranks).unwrap();
    let own = || (shard.rank()..).take(shard.parts()).map(|it| it as i64);
    let loss = |output: Tensor| output.to_kind(Kind::Float).cross_entropy_for_logits(&labels());
    let (mut saved, mut is_clipped) = (Saved::new(), false);
    for step in 0..5 {
        let images = own().map(|rank| numbers(&[4, 2, 5, 5], 7 * step + rank));
        let images = Tensor::stack(&images.collect::<Vec<_>>(), 1).flatten(0, 1);
        if step % accumulated == 0 {
            optimizer.zero_grad().unwrap();
        }
        let mut losses = Vec::new();
        let bf16 = Some(Kind::BFloat16);
        if in_step {
            let pass = |net: &N, share| autocast(Device::Cpu, bf16, || forward(net, &share));
            let pass = |net: &N, share| Ok(loss(pass(net, share)?));
            losses = model.backward_shares(images, 100 * step, pass).unwrap();
        } else {
            for share in model.shares(images, 100 * step) {
                let share = share.unwrap();
                let pass = || model.forward(|net| forward(net, &share));
                let loss = loss(autocast(Device::Cpu, bf16, pass).unwrap().unwrap());
                model.backward(&loss).unwrap();
                losses.push(loss);
            }
        }
        is_clipped |= clip_grad_norm_(&model.parameters(), 0.5).unwrap() > 0.5;
        let gradients = model.named_parameters().into_iter().map(|(name, it)| (name, it.grad()));
        save(&mut saved, &format!("{step}.grad"), gradients);
        optimizer.step().unwrap();
        saved.insert(format!("{step}.loss"), model.mean_of_shares(&losses).unwrap());
    }
    assert!(is_clipped, "a check of clipping needs larger gradients");
    saved.extend(vs.variables());
    saved
}

fn conv_net(p: nn::Path<'_>) -> (Conv<2>, BatchNorm, nn::Linear, Tensor) {
    let conv = conv2d(&p / "0", 2, 3, 3, Default::default());
    let norm = batch_norm2d(&p / "1", 3, BatchNormOptions::default());
    let last = linear(&p / "5", 27, 3, Default::default());
    (conv, norm, last, (&p / "6").zeros("scale", &[]))
}

type Transformer =
    (nn::Embedding, MultiheadAttention, nn::LayerNorm, CheckpointWrapper<nn::Linear>);

fn transformer(p: nn::Path<'_>) -> Transformer {
    let options =
        MultiheadAttentionOptions { dropout: 0.1, batch_first: true, ..Default::default() };
    let attention = multihead_attention(&p / "1", 8, 2, options);
    let norm = layer_norm(&p / "2", &[8], Default::default());
    let embedding = embedding(&p / "0", 11, 8, Default::default());
    let last = linear(&p / "3", 8, 3, Default::default());
    (embedding, attention, norm, CheckpointWrapper::new(last))
}

/// Calls `check` with groups of the first rank, the first two, and so on.
fn on_each_number_of_ranks(group: &ProcessGroup, check: impl Fn(&ProcessGroup)) {
    for ranks in 1..=group.world_size() {
        let members: Vec<_> = (0..ranks).collect();
        group.new_group(&members).unwrap().iter().for_each(&check);
    }
}

#[run_by(after_python((5, common::EACH_TRANSPORT), "virtual_ranks", ""))]
fn any_number_of_ranks_equals_pythons_five_with_five_virtual_ranks(
    group: &ProcessGroup,
    python: Saved,
) {
    on_each_number_of_ranks(group, |group| {
        let saved = trained((group, 5, 1), false, conv_net, |(conv, norm, last, scale), xs| {
            let xs = norm.forward_t(&conv.forward(xs), true).relu().flatten(1, -1);
            last.forward(&xs.dropout(0.5, true)) * scale
        });
        expect_equal(saved, python.iter().map(|(name, it)| (name.clone(), it.copy())).collect());
    });
}

#[run_by(on_ranks(3))]
fn a_transformer_has_the_same_bits_on_any_number_of_ranks(group: &ProcessGroup) {
    let forward = |(embedding, attention, norm, last): &Transformer, xs: &Tensor| {
        let tokens = (xs.flatten(1, -1) * 10).abs().to_kind(Kind::Int64);
        let xs = nn::Embedding::forward(embedding, &tokens).dropout(0.1, true);
        let (ys, _) =
            MultiheadAttention::forward(attention, &xs, &xs, &xs, Default::default(), true);
        let ys = nn::LayerNorm::forward(norm, &(xs + ys)).mean_dim(1, false, None);
        last.call(ys, |last, ys| nn::Linear::forward(last, &ys.dropout(0.1, true)))
    };
    expect_same(group, "transformer.safetensors", |group| {
        trained((group, 7, 2), false, transformer, forward)
    });
}

/// Calls `train` with groups of the first rank, the first two, and so on, and expects the same of all.
fn expect_same(group: &ProcessGroup, file: &str, train: impl Fn(&ProcessGroup) -> Saved) {
    on_each_number_of_ranks(group, |group| {
        let saved = train(group);
        if group.world_size() == 1 {
            return Tensor::write_safetensors(&Vec::from_iter(&saved), file).unwrap();
        }
        expect_equal(saved, common::read(file));
    });
}

fn synced(group: &ProcessGroup, virtual_ranks: usize, in_step: bool) -> Saved {
    let build = |p: nn::Path<'_>| {
        let options = BatchNormOptions::default();
        let conv = conv2d(&p / "0", 2, 3, 3, Default::default());
        let [first, last] = ["1", "3"].map(|it| sync_batch_norm(&p / it, 3, group, options));
        let plain = batch_norm2d(&p / "2", 3, options);
        (conv, first, plain, last, linear(&p / "5", 27, 3, Default::default()))
    };
    trained((group, virtual_ranks, 2), in_step, build, |(conv, first, plain, last, linear), xs| {
        let xs = first.forward_t(&conv.forward(xs), true).relu();
        let xs = last.forward_t(&plain.forward_t(&xs, true), true).flatten(1, -1);
        linear.forward(&xs.dropout(0.5, true))
    })
}

#[run_by(on_ranks_with_each_transport(3))]
fn sync_batch_norm_has_the_same_bits_on_any_number_of_ranks(group: &ProcessGroup) {
    expect_same(group, "synced.safetensors", |group| synced(group, 5, true));
}

#[run_by(on_ranks(2))]
fn sync_batch_norm_over_virtual_ranks_is_that_over_as_many_ranks(group: &ProcessGroup) {
    // Of two, whose sums have the same bits in either order.
    expect_equal(synced(group, 2, true), synced(group, 2, false));
}

#[run_by(on_ranks(1))]
fn a_share_that_fails_ends_the_step_of_all(group: &ProcessGroup) {
    let (vs, model) = ddp(group, options(3), |p| sync_batch_norm(p, 3, group, Default::default()));
    let batch = || Tensor::arange(18, FLOAT_CPU).view([6, 3]);
    let pass = |norm: &SyncBatchNorm, xs: Tensor| Ok(norm.forward_t(&xs, true).sum(Kind::Float));
    model.backward_shares(batch(), 0, pass).unwrap();
    let own = vs.variables();
    let state = || [own["weight"].grad().copy(), own["running_mean"].copy()];
    let before = state();
    let is_second = |xs: &Tensor| xs.double_value(&[0, 0]) == 3.0;
    let fails = |norm: &SyncBatchNorm, xs: Tensor| match is_second(&xs) {
        true => Ok(xs.sum(Kind::Float)),
        false => pass(norm, xs),
    };
    expect_error(model.backward_shares(batch(), 0, fails), "does not require grad");
    assert_eq!(state(), before);
    let skips = |norm: &SyncBatchNorm, xs: Tensor| match is_second(&xs) {
        true => Ok(norm.forward_t(&xs, false).sum(Kind::Float)),
        false => norm.f_forward_t(&xs, true),
    };
    let expected = "made by each share, and another one has failed or ended";
    expect_error(model.backward_shares(batch(), 0, skips), expected);
    assert_eq!(state(), before);
    model.backward_shares(batch(), 0, pass).unwrap();
    let plain = DistributedDataParallel::new((), &vs, group).unwrap();
    let outcome = plain.backward_shares(batch(), 0, |_: &(), xs| Ok(xs));
    expect_error(outcome, "called without virtual_ranks, but must be called with them");
}

#[run_by(on_ranks(1))]
fn shares_that_would_wait_for_each_others_block_are_told(group: &ProcessGroup) {
    let (_vs, model) = ddp(group, options(2), |p| {
        CheckpointWrapper::new(sync_batch_norm(p, 3, group, Default::default()))
    });
    let outcome = model.backward_shares(Tensor::ones([4, 3], FLOAT_CPU), 0, |block, xs| {
        Ok(block.forward(xs, |norm, xs| norm.forward_t(&xs, true))?.sum(Kind::Float))
    });
    let expected = "a CheckpointWrapper in backward_shares is around a layer that exchanges";
    expect_error(outcome, expected);
}

#[run_by(on_ranks(2))]
fn a_share_that_fails_on_one_rank_is_known_on_the_other(group: &ProcessGroup) {
    let (_vs, model) = ddp(group, options(4), |p| sync_batch_norm(p, 3, group, Default::default()));
    // So late that the others wait for its part of the backward pass. Not rank 0: with it, the store and its report end.
    let fails = group.rank() == 1;
    let pass = |norm: &SyncBatchNorm, xs: Tensor| {
        let loss = norm.f_forward_t(&xs, true)?.sum(Kind::Float);
        Ok(if fails && xs.double_value(&[0, 0]) == 0.0 { loss.detach() } else { loss })
    };
    let batch = Tensor::arange(12, FLOAT_CPU).view([4, 3]);
    expect_error(model.backward_shares(batch, 0, pass), "does not require grad");
}

#[run_by(on_ranks(1))]
fn a_loop_over_shares_may_look_as_with_other_models(group: &ProcessGroup) {
    for count in [1, 2] {
        let (vs, model) = ddp(group, options(count), |p| linear(p, 3, 1, Default::default()));
        let mut optimizer = sgd(&vs, 0.1);
        let batch = || Tensor::ones([2, 3], FLOAT_CPU);
        for step in 0..3 {
            for share in model.shares(batch(), 10 * step) {
                let loss = model.forward_t(&share.unwrap(), true).mean(Kind::Float);
                optimizer.zero_grad().unwrap();
                model.backward(&loss).unwrap();
            }
            assert_eq!(f64::try_from(vs.variables()["bias"].grad()).unwrap(), 1.0);
            // Left before the last backward pass, as for a loss that is not finite.
            for (place, share) in model.shares(batch(), 10 * step + 5).enumerate() {
                let loss = model.forward_t(&share.unwrap(), true).mean(Kind::Float);
                expect_error(model.backward(&loss.detach()), "does not require grad");
                if place + 1 < count {
                    model.backward(&loss).unwrap();
                }
            }
            assert_eq!(f64::try_from(vs.variables()["bias"].grad()).unwrap(), 1.0);
        }
    }
}

#[run_by(on_ranks(2))]
fn shares_begin_with_the_same_buffers_and_what_is_loaded_after_an_abandoned_step_stays(
    group: &ProcessGroup,
) {
    expect_same(group, "loaded.safetensors", |group| {
        let (vs, model) = ddp(group, options(2), |p| batch_norm1d(p, 3, Default::default()));
        let shard = tch_parallel::data::Shard::from(group).with_virtual_ranks(2).unwrap();
        let own = (shard.rank()..).take(shard.parts()).map(|it| numbers(&[4, 3], it as i64) + 3);
        let batch = Tensor::stack(&own.collect::<Vec<_>>(), 1).flatten(0, 1);
        let pass = |share: &Tensor| {
            // As that of a teacher.
            let target = no_grad(|| model.module().forward_t(share, false));
            let loss = (model.forward_t(share, true) - target).square().sum(Kind::Float);
            model.backward(&loss).unwrap();
        };
        let mut mean = vs.variables()["running_mean"].shallow_clone();
        let abandoned = model.shares(batch.copy(), 0).take(shard.parts() - 1);
        abandoned.for_each(|share| pass(&share.unwrap()));
        let _ = no_grad(|| mean.fill_(5.0));
        model.shares(batch, 10).for_each(|share| pass(&share.unwrap()));
        let bias = vs.variables()["bias"].grad();
        [("mean".to_owned(), mean), ("bias".to_owned(), bias)].into()
    });
}

#[run_by(on_ranks(1))]
fn weights_may_have_any_order_in_memory(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let net = nn::conv2d(vs.root(), 2, 3, 3, Default::default());
    channels_last_weights(&vs).unwrap();
    let (weight, images) = (&vs.variables()["weight"], numbers(&[4, 2, 5, 5], 1));
    let model = DistributedDataParallel::with_options(net, &vs, group, options(2)).unwrap();
    let loss = |images: &Tensor| model.forward_t(images, true).square().mean(Kind::Float);
    // Each share is the same batch, and half a number plus its half is that number.
    let batch = || Tensor::stack(&[&images, &images], 1).flatten(0, 1);
    let expected = model.module().forward_t(&images, true).square().mean(Kind::Float);
    let expected = &Tensor::run_backward(&[expected], &[weight], false, false)[0];
    for step in 0..3 {
        for share in model.shares(batch(), step) {
            model.backward(&loss(&share.unwrap())).unwrap();
        }
        assert_eq!(weight.grad(), *expected);
        weight.shallow_clone().zero_grad();
    }
}

#[run_by(on_ranks(2))]
fn what_would_not_be_the_same_on_another_number_of_ranks_is_refused(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let layer = linear(vs.root(), 3, 1, Default::default());
    let norm_vs = VarStore::new(Device::Cpu);
    let norm = sync_batch_norm(norm_vs.root(), 3, group, BatchNormOptions::default());
    let wrap = |options| DistributedDataParallel::with_options(&layer, &vs, group, options);
    expect_error(wrap(options(1)), "at least the number of ranks, which is 2");
    let sparse_gradients = ["weight".into()].into();
    expect_error(wrap(DdpOptions { sparse_gradients, ..options(4) }), "set with sparse_gradients");

    let model = wrap(options(4)).unwrap();
    let batch = || Tensor::ones([4, 3], FLOAT_CPU);
    expect_error(
        model.forward(|layer| layer.forward(&batch())).map(drop),
        "a pass with virtual_ranks is outside of DistributedDataParallel::shares, but must be for a share of a batch",
    );
    expect_error(
        model.shares(Tensor::ones([3, 3], FLOAT_CPU), 0).next().unwrap().map(drop),
        "the number of samples in a batch is 3, but must be a multiple of 2, this rank's virtual ranks",
    );
    for share in model.shares(batch(), 0).take(1) {
        let loss = layer.forward(&share.unwrap()).sum(Kind::Float);
        expect_error(model.backward(&loss), "is run first, but must be run after a forward pass");
    }
    for (place, share) in model.shares(batch(), 0).enumerate() {
        let share = share.unwrap();
        let expected = "is used in a share of virtual_ranks";
        expect_error(norm.f_forward_t(&share, true), expected);
        expect_error(functional::all_gather(&share, group), expected);
        let loss = model.forward(|layer| layer.forward(&share)).unwrap().sum(Kind::Float);
        if place == 1 {
            let expected = "passes before that of share 1 is 0, but must be 1";
            expect_error(model.backward(&loss), expected);
        }
    }
    // As after a step, on ranks with any number of shares.
    let drawn = Tensor::rand([1], FLOAT_CPU);
    tch::manual_seed(4);
    assert_eq!(drawn, Tensor::rand([1], FLOAT_CPU));
    for (place, share) in model.shares(batch(), 0).enumerate() {
        let loss = model.forward(|layer| layer.forward(&share.unwrap())).unwrap().sum(Kind::Float);
        match place {
            0 => model.backward(&loss).unwrap(),
            _ => expect_error(loss.f_backward(), "is started by the loss's own backward"),
        }
    }
}
