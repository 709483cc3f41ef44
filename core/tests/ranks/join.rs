//! Ranks that make different numbers of steps within `join`: every step's gradients are compared with hand-made ones.

use crate::prelude::*;
use crate::weights::{Model, Weights, backward, gradients, model, own, two_buckets, with_hook};
use std::cell::RefCell;

const WORLD: usize = 3;

/// Sums of three numbers below 1, added up in another order over a few steps.
const ROUNDING: f64 = 1e-6;

const BY_RANKS_THAT_TRAIN: JoinOptions =
    JoinOptions { divide_by_initial_world_size: false, throw_on_early_termination: false };

/// Makes this rank's number of steps within a join.
fn join(model: &Model, steps: i64, options: JoinOptions, step: impl FnMut(i64) -> Result<()>) {
    model.join(options, || (0..steps).try_for_each(step)).unwrap();
}

fn alive(steps: [i64; WORLD], step: i64) -> Vec<usize> {
    (0..WORLD).filter(|&rank| step < steps[rank]).collect()
}

/// The exchanged gradients of a step in which each rank's gradients are [`own`].
fn expected(steps: [i64; WORLD], step: i64, options: JoinOptions) -> [Tensor; 2] {
    let alive = alive(steps, step);
    let divisor = if options.divide_by_initial_world_size { WORLD } else { alive.len() } as f64;
    [0, 1].map(|part| {
        alive.iter().map(|&rank| own(rank, step)[part].shallow_clone()).sum::<Tensor>() / divisor
    })
}

fn assert_close(found: &[Tensor], expected: &[Tensor], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let difference = (found - expected).abs().max().double_value(&[]);
        assert!(difference < ROUNDING, "{what}: {difference}");
    }
}

fn parameters(vs: &VarStore) -> Vec<Tensor> {
    vs.trainable_variables().iter().map(|parameter| parameter.detach().copy()).collect()
}

fn assert_shared(group: &ProcessGroup, tensors: &[Tensor]) {
    for tensor in tensors {
        group.all_gather(tensor).unwrap().iter().for_each(|theirs| assert_eq!(theirs, tensor));
    }
}

/// Trains with these numbers of steps. Checks the gradients of every step, and that all ranks end
/// with the weights of the ranks that trained longest.
fn train(
    group: &ProcessGroup,
    steps: [i64; WORLD],
    options: JoinOptions,
    (vs, model): &(VarStore, Model),
) {
    let rate = 0.1;
    let mut optimizer = Sgd::new(vs, SgdOptions { lr: rate, ..Default::default() }).unwrap();
    let mut weights = parameters(vs);
    for step in 0..*steps.iter().max().unwrap() {
        let step = expected(steps, step, options);
        weights.iter_mut().zip(step).for_each(|(weight, gradient)| *weight -= gradient * rate);
    }
    join(model, steps[group.rank()], options, |step| {
        backward(vs, model, &own(group.rank(), step))?;
        assert_close(&gradients(vs), &expected(steps, step, options), &format!("step {step}"));
        optimizer.step()
    });
    assert_close(&parameters(vs), &weights, "the final weights");
    assert_shared(group, &parameters(vs));
}

#[run_by(on_ranks(3))]
fn a_rank_without_inputs_adds_zeros_to_the_gradients_of_the_others(group: &ProcessGroup) {
    for steps in [[3, 5, 7], [7, 3, 5], [4, 4, 4], [0, 1, 3]] {
        for options in [JoinOptions::default(), BY_RANKS_THAT_TRAIN] {
            for ddp in [DdpOptions::default(), two_buckets()] {
                train(group, steps, options, &model(group, ddp));
            }
        }
    }
    // With every kind of engine.
    for ddp in [
        DdpOptions { find_unused_parameters: true, ..two_buckets() },
        DdpOptions { gradient_as_bucket_view: true, ..two_buckets() },
        DdpOptions { static_graph: true, ..two_buckets() },
    ] {
        train(group, [2, 4, 3], BY_RANKS_THAT_TRAIN, &model(group, ddp));
    }
}

#[run_by(on_ranks(3))]
fn a_training_may_join_again_and_go_on_without(group: &ProcessGroup) {
    let wrapped = model(group, two_buckets());
    train(group, [3, 5, 4], BY_RANKS_THAT_TRAIN, &wrapped);
    train(group, [6, 2, 4], BY_RANKS_THAT_TRAIN, &wrapped);
    // The joins above ended with a single rank training, but gradients are no longer divided by that number.
    let (vs, model) = &wrapped;
    backward(vs, model, &own(group.rank(), 0)).unwrap();
    assert_close(&gradients(vs), &expected([1; WORLD], 0, JoinOptions::default()), "after");
    assert!(model.logging_data().unwrap().join_uneven_inputs);
}

#[run_by(on_ranks(3))]
fn a_parameter_that_nobody_uses_any_more_keeps_its_gradient(group: &ProcessGroup) {
    let (vs, model) = model(group, DdpOptions { find_unused_parameters: true, ..two_buckets() });
    let steps = [1, 3, 2];
    let mut vectors = Vec::new();
    join(&model, steps[group.rank()], JoinOptions::default(), |step| {
        let gradients = own(group.rank(), step);
        // From the second step on only rank 2 uses the vector, and it makes two steps.
        let uses_vector = step == 0 || group.rank() == 2;
        let loss = model.forward(|weights| match uses_vector {
            true => weights.loss(&gradients),
            false => (&weights.matrix * &gradients[0]).sum(Kind::Float),
        })?;
        Sgd::new(&vs, SgdOptions::default())?.zero_grad()?;
        model.backward(&loss)?;
        let gradient = vs.trainable_variables()[1].grad();
        vectors.push(gradient.defined().then(|| gradient.copy()));
        Ok(())
    });
    if group.rank() == 1 {
        let second = &own(2, 1)[1] / WORLD as f64;
        assert_close(&[vectors[1].take().unwrap()], &[second], "used by another rank");
        assert!(vectors[2].is_none(), "used by nobody");
    }
}

#[run_by(on_ranks(3))]
fn gradients_add_up_under_no_sync_within_a_join(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    // Pairs of passes; the second of each pair exchanges the sum.
    let pairs = [1, 3, 2];
    let sum = |rank, pair| {
        let (first, second) = (own(rank, 2 * pair), own(rank, 2 * pair + 1));
        [&first[0] + &second[0], &first[1] + &second[1]]
    };
    let pass = |step| model.backward(&model.forward(|it| it.loss(&own(group.rank(), step)))?);
    join(&model, pairs[group.rank()], BY_RANKS_THAT_TRAIN, |pair| {
        Sgd::new(&vs, SgdOptions::default())?.zero_grad()?;
        let accumulating = model.no_sync();
        pass(2 * pair)?;
        drop(accumulating);
        assert_close(&gradients(&vs), &own(group.rank(), 2 * pair), "not exchanged");
        pass(2 * pair + 1)?;
        let alive = alive(pairs, pair);
        let mean = [0, 1].map(|part| {
            let sums = alive.iter().map(|&rank| sum(rank, pair)[part].shallow_clone());
            sums.sum::<Tensor>() / alive.len() as f64
        });
        assert_close(&gradients(&vs), &mean, &format!("pair {pair}"));
        Ok(())
    });
}

#[run_by(on_ranks(3))]
fn buffers_come_from_the_highest_rank_that_trains(group: &ProcessGroup) {
    let vs = VarStore::new(Device::Cpu);
    let weights = Weights::new(&vs.root());
    let buffer = vs.root().zeros_no_train("buffer", &[1]);
    let model = DistributedDataParallel::with_options(weights, &vs, group, two_buckets()).unwrap();
    let steps = [5, 3, 2];
    let seen = RefCell::new(Vec::new());
    join(&model, steps[group.rank()], JoinOptions::default(), |step| {
        let loss = model.forward(|weights| {
            seen.borrow_mut().push(buffer.double_value(&[0]));
            let own = (10 * step + group.rank() as i64) as f64;
            let _ = no_grad(|| buffer.shallow_clone().fill_(own));
            weights.matrix.sum(Kind::Float) + weights.vector.sum(Kind::Float)
        })?;
        model.backward(&loss)
    });
    let later = |step: i64| (10 * (step - 1)) as f64 + *alive(steps, step).last().unwrap() as f64;
    let expected: Vec<_> = [0.0].into_iter().chain((1..steps[group.rank()]).map(later)).collect();
    assert_eq!(*seen.borrow(), expected);
    assert_eq!(buffer.double_value(&[0]), 40.0, "that of rank 0, the last");
}

#[run_by(on_ranks(3))]
fn a_communication_hook_gets_zeros_of_a_rank_without_inputs(group: &ProcessGroup) {
    let (vs, model) = model(group, with_hook(hooks::Fp16Compress));
    let steps = [3, 4, 2];
    join(&model, steps[group.rank()], BY_RANKS_THAT_TRAIN, |step| {
        backward(&vs, &model, &own(group.rank(), step))?;
        // The hook does the division, always by three.
        let exact = expected(steps, step, JoinOptions::default());
        for (found, exact) in gradients(&vs).iter().zip(&exact) {
            let difference = (found - exact).abs().max().double_value(&[]);
            // Three numbers below 1/3, each rounded to 11 bits.
            assert!(difference < 1e-3 && difference > ROUNDING, "{difference}");
        }
        Ok(())
    });
}

#[run_by(on_ranks(3))]
fn a_rank_without_inputs_follows_a_hook_that_exchanges_in_several_steps(group: &ProcessGroup) {
    let options = hooks::PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() };
    let hook = hooks::PowerSgd::new(options).unwrap();
    let (vs, model) = model(group, DdpOptions { find_unused_parameters: true, ..with_hook(hook) });
    let mut optimizer = Sgd::new(&vs, SgdOptions { lr: 0.1, ..Default::default() }).unwrap();
    join(&model, [6, 3, 4][group.rank()], JoinOptions::default(), |step| {
        backward(&vs, &model, &own(group.rank(), step))?;
        optimizer.step()
    });
    assert_shared(group, &parameters(&vs));
}

#[run_by(on_ranks(3))]
fn a_rank_whose_training_fails_is_named_by_the_others(group: &ProcessGroup) {
    let (vs, model) = model(group, two_buckets());
    // When rank 1 fails, rank 0 has no more inputs, but rank 2 does.
    let step = |step: i64| {
        if group.rank() == 1 && step == 4 {
            return Err(Error::argument("sample 4", "damaged", "whole"));
        }
        backward(&vs, &model, &own(group.rank(), step))
    };
    let steps = [2, 9, 9][group.rank()];
    let error = message(model.join(JoinOptions::default(), || (0..steps).try_for_each(step)));
    let fault = "sample 4 is damaged, but must be whole";
    match group.rank() {
        1 => assert_eq!(error, fault),
        _ => assert!(error.contains(&format!("rank 1 reports: {fault}")), "{error}"),
    }
    // Rank 0 serves the store, and rank 2 may ask late.
    if group.rank() == 2 {
        fs::write("known", []).unwrap();
    } else if group.rank() == 0 {
        let deadline = past(Instant::now() + common::TIMEOUT);
        until("rank 2 knew", deadline, || Ok(fs::metadata("known").ok())).unwrap();
    }
}

#[run_by(on_ranks(2))]
fn a_static_graph_needs_a_step_on_every_rank(group: &ProcessGroup) {
    let (vs, model) = model(group, DdpOptions { static_graph: true, ..two_buckets() });
    let step = |step: i64| backward(&vs, &model, &own(group.rank(), step));
    let steps = [2, 0][group.rank()];
    let error = message(model.join(JoinOptions::default(), || (0..steps).try_for_each(step)));
    let fault = "the number of steps of rank 1 is 0, but must be at least 1 with static_graph";
    match group.rank() {
        1 => assert!(error.starts_with(fault), "{error}"),
        _ => assert!(error.contains(&format!("rank 1 reports: {fault}")), "{error}"),
    }
}
