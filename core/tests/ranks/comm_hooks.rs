//! Communication hooks: what they see, what becomes of their result, and when they are called. What the
//! built-in ones compute is compared with Python in `ddp_hooks` and `hooks_parity`.

use crate::prelude::*;
use crate::weights::{backward, gradients, mean, model, own, with_hook};

/// The exchanged gradients of two ranks with this hook, step by step.
fn steps(group: &ProcessGroup, hook: impl CommHook + 'static) -> Vec<[Tensor; 2]> {
    let (vs, model) = model(group, with_hook(hook));
    let exchanged = |step| {
        backward(&vs, &model, &own(group.rank(), step)).unwrap();
        gradients(&vs)
    };
    (0..4).map(exchanged).collect()
}

#[run_by(on_ranks(2))]
fn a_hooks_result_replaces_the_gradients_even_if_it_is_a_view(group: &ProcessGroup) {
    // A part of a larger tensor, and a tensor that is not contiguous.
    for contiguous in [true, false] {
        let hook = hooks::from_fn("shifted", move |_, bucket| {
            let buffer = bucket.buffer()?;
            let len = buffer.numel() as i64;
            let doubled = Tensor::cat(&[&buffer * 0.0 - 1.0, &buffer * 2.0], 0);
            let result = match contiguous {
                true => doubled.narrow(0, len, len),
                false => doubled.view([2, len]).transpose(0, 1).contiguous().select(1, 1),
            };
            Ok(Box::new(|| Ok(result)))
        });
        let doubled: Vec<_> =
            (0..4).map(|step| own(group.rank(), step).map(|it| it * 2.0)).collect();
        assert_eq!(steps(group, hook), doubled);
    }
}

#[run_by(on_ranks(2))]
fn a_hook_sees_each_bucket_as_this_rank_has_computed_it(group: &ProcessGroup) {
    let (sender, seen) = mpsc::channel();
    let watch = hooks::from_fn("watch", move |group, bucket| {
        let place = (bucket.index(), bucket.is_last());
        let gradients: Vec<_> = bucket.gradients()?.iter().map(Tensor::copy).collect();
        let buffer = bucket.buffer()?.copy();
        let _ = sender.send((place, buffer, gradients, bucket.parameters()?));
        hooks::AllReduce.start(group, bucket)
    });
    let (vs, model) = model(group, with_hook(watch));
    for (step, buckets) in [(0, 1), (1, 2), (2, 2)] {
        let own = own(group.rank(), step);
        backward(&vs, &model, &own).unwrap();
        let seen: Vec<_> = seen.try_iter().collect();
        assert_eq!(seen.len(), buckets);
        for (index, (place, buffer, gradients, parameters)) in seen.iter().enumerate() {
            assert_eq!(*place, (index, index + 1 == buckets));
            let flat: Vec<_> = gradients.iter().map(|each| each.flatten(0, -1)).collect();
            assert_eq!(*buffer, Tensor::cat(&flat, 0));
            for (parameter, gradient) in parameters.iter().zip(gradients) {
                let is_matrix = parameter.size() == [24, 16];
                assert_eq!(gradient, if is_matrix { &own[0] } else { &own[1] });
            }
        }
    }
    assert_eq!(model.logging_data().unwrap().comm_hook, "watch");
}

#[run_by(on_ranks(2))]
fn a_hook_may_exchange_again_when_the_first_exchange_has_ended(group: &ProcessGroup) {
    // As many buckets as gloo has threads, each with three collectives, two of which wait for
    // the one before. On gloo's own threads they would wait for each other forever.
    let hook = hooks::from_fn("mean of means", |group, bucket| {
        let group = group.clone();
        let sum = group.all_reduce_async(bucket.buffer()?, ReduceOp::Sum)?;
        Ok(Box::new(move || {
            let mut tensor = sum.wait()? / 4.0;
            (0..2).try_for_each(|_| group.all_reduce(&mut tensor, ReduceOp::Sum))?;
            Ok(tensor / 2.0)
        }))
    });
    assert_eq!(steps(group, hook), (0..4).map(mean).collect::<Vec<_>>());
}

#[run_by(on_ranks(2))]
fn under_no_sync_no_hook_is_called(group: &ProcessGroup) {
    let (vs, model) = model(group, with_hook(hooks::Fp16Compress));
    backward(&vs, &model, &own(group.rank(), 0)).unwrap();
    let accumulating = model.no_sync();
    backward(&vs, &model, &own(group.rank(), 1)).unwrap();
    drop(accumulating);
    assert_eq!(gradients(&vs), own(group.rank(), 1));
    backward(&vs, &model, &own(group.rank(), 2)).unwrap();
    // The hook again: the mean of halves, rounded.
    let half = |rank, part: usize| own(rank, 2)[part].to_kind(Kind::Half) / 2.0;
    let mean = [0, 1].map(|part| (half(0, part) + half(1, part)).to_kind(Kind::Float));
    assert_eq!(gradients(&vs), mean);
}

/// The last gradients of three matrices, two of them of the same shape, after four steps.
fn three_matrices(group: &ProcessGroup, options: hooks::PowerSgdOptions) -> Vec<Tensor> {
    let matrices = [("a", [24, 16]), ("b", [20, 10]), ("c", [24, 16])];
    let options = hooked(hooks::PowerSgd::new(options).unwrap());
    let (vs, model) = ddp(group, options, |p| matrices.map(|(name, shape)| p.zeros(name, &shape)));
    for step in 0..4 {
        let sum = |(index, matrix): (usize, &Tensor)| {
            let numbers = Tensor::arange(matrix.numel() as i64, FLOAT_CPU);
            let speed = 0.1 + (index + step + 3 * group.rank()) as f64 * 0.2;
            ((numbers * speed).sin().view_as(matrix) * matrix).sum(Kind::Float)
        };
        let loss = model.forward(|all| all.iter().enumerate().map(sum).sum::<Tensor>()).unwrap();
        sgd(&vs, 0.0).zero_grad().unwrap();
        model.backward(&loss).unwrap();
    }
    vs.trainable_variables().iter().map(Tensor::grad).collect()
}

#[run_by(on_ranks(2))]
fn gradients_of_the_same_shape_may_be_computed_with_together(group: &ProcessGroup) {
    let apart = hooks::PowerSgdOptions { start_power_sgd_iter: 2, ..Default::default() };
    let together = hooks::PowerSgdOptions { batch_tensors_with_same_shape: true, ..apart };
    let (together, apart) = (three_matrices(group, together), three_matrices(group, apart));
    for (together, apart) in together.iter().zip(&apart) {
        let largest = |tensor: &Tensor| tensor.abs().max().double_value(&[]);
        // The error of values around 1 after a few dozen operations in f32.
        assert!(largest(apart) > 0.1 && largest(&(together - apart)) < 1e-5);
    }
}
