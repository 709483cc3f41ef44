//! A network with SyncBatchNorm under DistributedDataParallel, compared with one process that has all the data.

use crate::batches::{Batch, CHANNELS, IMAGE, assert_close, vary_weights};
use crate::{prelude::*, weights::two_buckets};
use tch_parallel::nn::{Conv2d, ConvOptions, NormLayer, conv2d};

/// Means in 64 bits, rounded and added up in another order, through several layers.
const ROUNDING: f64 = 1e-12;

/// Two convolutions, each followed by a normalisation.
type Net = ([Conv2d; 2], [Box<dyn ModuleT>; 2]);

fn net(vs: &VarStore, norm_layer: &NormLayer) -> Net {
    let path = vs.root();
    let options = ConvOptions { padding: 1, ..Default::default() };
    let norm = |name: &str| norm_layer.build(&path / name, CHANNELS);
    let conv = |name: &str| conv2d(&path / name, CHANNELS, CHANNELS, 3, options);
    ([conv("conv1"), conv("conv2")], [norm("bn1"), norm("bn2")])
}

/// The second has a shortcut, so the graph has two paths.
fn forward((convs, norms): &Net, xs: &Tensor) -> Tensor {
    let xs = norms[0].forward_t(&convs[0].forward(xs), true).relu();
    norms[1].forward_t(&convs[1].forward(&xs), true) + xs
}

/// Trains a net wrapped in DistributedDataParallel, with a bucket for every gradient, so that their
/// exchanges come between those of the normalisations; and the same net alone.
#[run_by(on_ranks(3))]
fn under_ddp_a_rank_may_have_nothing(group: &ProcessGroup) {
    let norm_layers = [NormLayer::SyncBatchNorm(group.clone()), NormLayer::BatchNorm];
    let [(vs, net), (vs_alone, alone)] = norm_layers.map(|norm_layer| {
        let mut vs = VarStore::new(Device::Cpu);
        let net = net(&vs, &norm_layer);
        vs.double();
        vary_weights(&vs);
        (vs, net)
    });
    let model = DistributedDataParallel::with_options(net, &vs, group, two_buckets()).unwrap();
    for step in 0..3 {
        let batch = Batch::new(&[4, 0, 1], IMAGE, step);
        let double = |tensor: &Tensor| tensor.to_kind(Kind::Double);
        let (images, targets) = (double(&batch.images), double(&batch.targets));
        (forward(&alone, &images) * &targets).sum(Kind::Double).backward();
        let output = model.forward(|net| forward(net, &batch.part(group, &images))).unwrap();
        let loss = (output * batch.part(group, &targets)).sum(Kind::Double);
        // The gradients are averaged over the ranks.
        model.backward(&(loss * group.world_size() as f64)).unwrap();

        let (found, expected) = (vs.trainable_variables(), vs_alone.trainable_variables());
        for (found, expected) in found.iter().zip(&expected) {
            assert_close("a gradient", &found.grad(), &expected.grad(), ROUNDING);
        }
        for parameter in found.into_iter().chain(expected) {
            let gradient = parameter.grad();
            let _ = no_grad(|| parameter.shallow_clone().g_sub_(&(&gradient * 0.01)));
            let _ = gradient.shallow_clone().zero_();
        }
    }
    for (name, expected) in vs_alone.variables() {
        assert_close(&name, &vs.variables()[&name], &expected, ROUNDING);
    }
}
