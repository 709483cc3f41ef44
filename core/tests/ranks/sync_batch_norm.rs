//! SyncBatchNorm between processes, compared with a batch norm of one process with all the data. Samples
//! of all shapes are compared with Python's in `sync_batch_norm_parity`.

use crate::batches::{Batch, CHANNELS, IMAGE, assert_close, vary_weights};
use crate::prelude::*;
use tch_parallel::nn::*;

/// The shape of each channel of a sample that is not an image but a row: one number.
const ROW: &[i64] = &[];

/// Means in 32 bits, rounded and added up in another order: a few units in the last place.
const ROUNDING: f64 = 1e-6;

/// The results of a pass over images: the output, and the gradients of the images, the weight and the bias.
fn pass(layer: &dyn ModuleT, vs: &VarStore, images: &Tensor, targets: &Tensor) -> Vec<Tensor> {
    let images = images.copy().set_requires_grad(true);
    let output = layer.forward_t(&images, true);
    (&output * targets).sum(Kind::Float).backward();
    let mut results = vec![output.detach(), gradient(&images)];
    for mut parameter in vs.trainable_variables() {
        results.push(gradient(&parameter));
        c10d_sys::tensor::clear_grad(&mut parameter).unwrap();
    }
    results
}

/// The gradient; zeros if a tensor has none, as on a rank without rows.
fn gradient(tensor: &Tensor) -> Tensor {
    let gradient = tensor.grad();
    if gradient.defined() { gradient } else { tensor.zeros_like() }
}

type Layers = ((VarStore, SyncBatchNorm), (VarStore, BatchNorm));

fn layers(group: &ProcessGroup, sample: &[i64], options: BatchNormOptions) -> Layers {
    let [vs, vs_alone] = [(); 2].map(|()| VarStore::new(Device::Cpu));
    let layer = sync_batch_norm(vs.root(), CHANNELS, group, options);
    let root = vs_alone.root();
    let alone = match sample.is_empty() {
        true => batch_norm1d(root, CHANNELS, options),
        false => batch_norm2d(root, CHANNELS, options),
    };
    [&vs, &vs_alone].into_iter().for_each(vary_weights);
    ((vs, layer), (vs_alone, alone))
}

/// Trains two batches and compares everything that can be seen.
fn follows_one_process(
    group: &ProcessGroup,
    rows: &[i64],
    sample: &[i64],
    options: BatchNormOptions,
) {
    let ((vs, layer), (vs_alone, alone)) = layers(group, sample, options);
    for step in 0..2 {
        let batch = Batch::new(rows, sample, step);
        let expected = pass(&alone, &vs_alone, &batch.images, &batch.targets);
        let part = |all: &Tensor| batch.part(group, all);
        let mut found = pass(&layer, &vs, &part(&batch.images), &part(&batch.targets));
        assert_close("the output", &found[0], &part(&expected[0]), ROUNDING);
        assert_close("the images' gradient", &found[1], &part(&expected[1]), ROUNDING);
        for (found, expected) in found[2..].iter_mut().zip(&expected[2..]) {
            group.all_reduce(found, ReduceOp::Sum).unwrap();
            assert_close("a parameter's gradient", found, expected, ROUNDING);
        }
        let (found, expected) = (vs.variables(), vs_alone.variables());
        assert_eq!(found.len(), expected.len());
        for (name, expected) in expected {
            assert_close(&name, &found[&name], &expected, ROUNDING);
        }
    }
}

#[run_by(on_ranks(3))]
fn batches_may_differ_in_size_and_a_rank_may_have_nothing(group: &ProcessGroup) {
    for (rows, sample) in [([1, 5, 2], IMAGE), ([3, 0, 2], IMAGE), ([1, 5, 0], ROW)] {
        eprintln!("{rows:?} rows of {sample:?}");
        follows_one_process(group, &rows, sample, BatchNormOptions::default());
    }
}

#[run_by(on_ranks(2))]
fn without_rows_on_any_rank_statistics_are_pytorchs_and_gradients_missing(group: &ProcessGroup) {
    let ((vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    let images = Tensor::zeros([0, CHANNELS, 2, 2], FLOAT_CPU).set_requires_grad(true);
    let output = layer.f_forward_t(&images, true).unwrap();
    assert_eq!(output.size(), images.size());
    output.sum(Kind::Float).backward();
    // PyTorch's numbers: a mean and a variance of 0 count, and there are no gradients.
    let trained = vs.trainable_variables();
    assert!(trained.iter().chain([&images]).all(|tensor| !tensor.grad().defined()));
    let stats = layer.batch_norm.running_stats.as_ref().unwrap();
    assert_eq!(Vec::<f32>::try_from(&stats.mean).unwrap(), [0.0; 3]);
    assert_eq!(Vec::<f32>::try_from(&stats.var).unwrap(), [0.9; 3]);
    assert_eq!(stats.num_batches_tracked.int64_value(&[]), 1);
}

#[run_by(on_ranks(1))]
fn without_rows_a_single_rank_keeps_its_mean_and_variance(group: &ProcessGroup) {
    let ((vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    let images = Tensor::zeros([0, CHANNELS, 2, 2], FLOAT_CPU);
    layer.f_forward_t(&images, true).unwrap().sum(Kind::Float).backward();
    let stats = layer.batch_norm.running_stats.as_ref().unwrap();
    // Without other ranks it is a plain batch norm, which leaves mean and variance alone.
    assert_eq!(Vec::<f32>::try_from(&stats.var).unwrap(), [1.0; 3]);
    assert_eq!(stats.num_batches_tracked.int64_value(&[]), 1);
    assert!(vs.trainable_variables().iter().all(|tensor| tensor.grad().defined()));
}

#[run_by(on_ranks(2))]
fn without_weights_and_running_statistics_ranks_follow_one_process(group: &ProcessGroup) {
    let options =
        BatchNormOptions { affine: false, track_running_stats: false, ..Default::default() };
    follows_one_process(group, &[1, 3], IMAGE, options);
}

#[run_by(on_ranks(2))]
fn images_of_16_bits_have_statistics_of_32(group: &ProcessGroup) {
    let ((_vs, layer), (_vs_alone, alone)) = layers(group, IMAGE, BatchNormOptions::default());
    let batch = Batch::new(&[2, 4], IMAGE, 0);
    let images = batch.images.to_kind(Kind::BFloat16);
    let expected = alone.forward_t(&images, true);
    let found = layer.forward_t(&batch.part(group, &images), true);
    assert_eq!(found.kind(), Kind::BFloat16);
    // One unit in the last place of 8 bits.
    assert_close("the output", &found, &batch.part(group, &expected), 0.01);
    let [found, expected] = [layer.batch_norm, alone].map(|it| it.running_stats.unwrap());
    assert_close("running_mean", &found.mean, &expected.mean, ROUNDING);
    assert_close("running_var", &found.var, &expected.var, ROUNDING);
}

#[run_by(on_ranks(2))]
fn a_large_mean_does_not_swallow_the_variance(group: &ProcessGroup) {
    let options = BatchNormOptions { momentum: 1.0, ..Default::default() };
    let ((_vs, layer), _) = layers(group, IMAGE, options);
    let batch = Batch::new(&[3, 3], IMAGE, 0);
    // 32 bits represent 1000 to about 1/30,000, but its square only to 1/16, and the variance is smaller than that.
    let images = &batch.images * 0.1 + 1000;
    let _ = layer.forward_t(&batch.part(group, &images), true);
    let expected = images.to_kind(Kind::Double).var_dim([0, 2, 3].as_slice(), true, false);
    let ratio = layer.batch_norm.running_stats.unwrap().var / expected;
    assert_close("the variance", &ratio, &ratio.ones_like(), 1e-3);
}

#[run_by(on_ranks(2))]
fn an_evaluation_and_a_backward_pass_to_the_weights_alone_need_no_other_rank(group: &ProcessGroup) {
    let ((vs, layer), (_vs_alone, alone)) = layers(group, IMAGE, BatchNormOptions::default());
    let batch = Batch::new(&[3, 3], IMAGE, 0);
    let output = layer.forward_t(&batch.part(group, &batch.images), true);
    let _ = alone.forward_t(&batch.images, true);
    if group.rank() == 0 {
        let found = layer.forward_t(&batch.images, false);
        assert_close("the output", &found, &alone.forward_t(&batch.images, false), ROUNDING);
        // The images need no gradient.
        output.sum(Kind::Float).backward();
        assert!(vs.trainable_variables().iter().all(|parameter| parameter.grad().defined()));
    }
    let frozen = no_grad(|| layer.forward_t(&batch.part(group, &batch.images), true));
    assert!(!frozen.requires_grad());
}

#[run_by(on_ranks(2))]
fn a_training_pass_leaves_the_graph_of_an_evaluation_alone(group: &ProcessGroup) {
    let ((_vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    let batch = Batch::new(&[3, 3], IMAGE, 0);
    let images = batch.part(group, &batch.images).copy().set_requires_grad(true);
    let evaluated = layer.forward_t(&images, false);
    let _ = layer.forward_t(&images, true);
    evaluated.sum(Kind::Float).f_backward().unwrap();
    assert!(images.grad().defined());
}

#[run_by(on_ranks(2))]
fn a_backward_pass_needs_its_graph_and_the_input_as_it_was(group: &ProcessGroup) {
    let ((_vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    let batch = Batch::new(&[3, 3], IMAGE, 0);
    let images = batch.part(group, &batch.images).copy().set_requires_grad(true);
    let pass = |output: &Tensor, keep_graph| {
        Tensor::f_run_backward(&[output.sum(Kind::Float)], &[&images], keep_graph, false)
    };
    let output = layer.forward_t(&images, true) * batch.part(group, &batch.targets);
    assert_eq!(pass(&output, true).unwrap()[0], pass(&output, false).unwrap()[0]);
    // Without the product, whose own backward would complain first.
    let output = layer.forward_t(&images, true);
    pass(&output, false).unwrap();
    expect_error(pass(&output, false), "has already been run");
    let mut doubled = &images * 2;
    let output = layer.forward_t(&doubled, true);
    let _ = doubled.g_add_scalar_(1);
    let expected = "the input of SyncBatchNorm is changed in place after the forward pass";
    expect_error(output.sum(Kind::Float).f_backward(), expected);
    let output = layer.forward_t(&images, true);
    let _ = no_grad(|| layer.batch_norm.ws.as_ref().unwrap().shallow_clone().fill_(7.0));
    expect_error(pass(&output, false), "the weight of SyncBatchNorm is changed in place");
}

#[run_by(on_ranks(2))]
fn one_value_on_all_ranks_together_is_refused(group: &ProcessGroup) {
    let ((vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    let images = |rows: usize| Tensor::ones([rows as i64, CHANNELS, 1, 1], FLOAT_CPU);
    let expected = "1 values per channel on all ranks together";
    expect_error(layer.f_forward_t(&images(group.rank()), true), expected);
    assert_eq!(vs.variables()["num_batches_tracked"].int64_value(&[]), 0);
    let _ = layer.f_forward_t(&images(1), true).unwrap();
}

#[run_by(on_ranks(1))]
fn what_cannot_be_normalised_is_an_error_and_no_panic(group: &ProcessGroup) {
    let ((_vs, layer), _) = layers(group, IMAGE, BatchNormOptions::default());
    for size in [&[2, 4, 3, 3][..], &[3]] {
        let error = message(layer.f_forward_t(&Tensor::zeros(size, FLOAT_CPU), false));
        assert!(error.ends_with("but must be [N, 3, …]"), "{error}");
    }
    let one_value = Tensor::ones([1, CHANNELS, 1, 1], FLOAT_CPU);
    expect_error(layer.f_forward_t(&one_value, true), "1 values per channel on all ranks together");
    let integers = Tensor::zeros([2, CHANNELS, 3, 3], INT64_CPU);
    for train in [true, false] {
        expect_error(layer.f_forward_t(&integers, train), "not implemented for 'Long'");
    }
}
