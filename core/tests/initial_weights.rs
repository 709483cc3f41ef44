//! The same seed draws PyTorch's weights. This test has a program of its own, because tests in the
//! same program run in parallel and draw from the same global generator.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use approx::assert_abs_diff_eq;
use tch::nn::VarStore;
use tch::{Device, Kind, Tensor};
use tch_parallel::nn::init::{FanInOut, Nonlinearity, kaiming_normal_};
use tch_parallel::nn::{ConvOptions, EmbeddingOptions, LinearOptions, conv2d, embedding, linear};

#[test]
fn the_same_seed_draws_pytorchs_weights() {
    tch::manual_seed(0);
    let layer = linear(VarStore::new(Device::Cpu).root(), 3, 2, LinearOptions::default());
    assert_drawn(&layer.ws, &numbers(LINEAR_WEIGHT));
    assert_drawn(layer.bs.as_ref().unwrap(), &numbers(LINEAR_BIAS));

    let weight = numbers(EMBEDDING_WEIGHT);
    let mut padded = weight.clone();
    padded[6..9].fill(0.0);
    for (padding_idx, weight) in [(None, weight), (Some(2), padded)] {
        tch::manual_seed(0);
        let options = EmbeddingOptions { padding_idx, ..Default::default() };
        let layer = embedding(VarStore::new(Device::Cpu).root(), 4, 3, options);
        assert_drawn(&layer.ws, &weight);
    }

    tch::manual_seed(0);
    let layer = conv2d(VarStore::new(Device::Cpu).root(), 2, 1, 2, ConvOptions::default());
    assert_drawn(&layer.ws, &numbers(CONV2D_WEIGHT));
    assert_drawn(layer.bs.as_ref().unwrap(), &numbers(CONV2D_BIAS));

    let kernel = Tensor::zeros([3, 1, 2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    for (mode, drawn) in [(FanInOut::FanIn, KAIMING_FAN_IN), (FanInOut::FanOut, KAIMING_FAN_OUT)] {
        tch::manual_seed(0);
        kaiming_normal_(&kernel, mode, Nonlinearity::Relu);
        assert_drawn(&kernel, &numbers(drawn));
    }
}

/// Not compared bit for bit, because processors round these numbers differently. The parity tests
/// of networks, which run Python on the same processor, compare all bits.
fn assert_drawn(tensor: &Tensor, expected: &[f32]) {
    let drawn = Vec::<f32>::try_from(tensor.view([-1])).unwrap();
    assert_abs_diff_eq!(drawn[..], *expected, epsilon = 1e-6);
}

fn numbers(text: &str) -> Vec<f32> {
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// `torch.manual_seed(0); layer = nn.Linear(3, 2)` in PyTorch 2.11.
const LINEAR_WEIGHT: &str =
    "-0.0043225177 0.30971584 -0.47518533 -0.4248946 -0.22236897 0.15482073";
const LINEAR_BIAS: &str = "-0.011439145 0.45777494";

/// `torch.manual_seed(0); nn.Embedding(4, 3).weight`.
const EMBEDDING_WEIGHT: &str = "1.5409961 -0.2934289 -2.1787894 0.56843126 -1.0845224 -1.3985955 0.40334684 \
     0.83802634 -0.7192576 -0.40334353 -0.59663534 0.18203649";

/// `torch.manual_seed(0); layer = nn.Conv2d(2, 1, 2)`.
const CONV2D_WEIGHT: &str = "-0.0026469906 0.18966144 -0.29099038 -0.26019374 -0.13617262 0.094807945 -0.007005017 \
     0.28032875";
const CONV2D_BIAS: &str = "-0.03137576";

/// `torch.manual_seed(0); nn.init.kaiming_normal_(torch.empty(3, 1, 2, 2), mode="fan_in")`.
const KAIMING_FAN_IN: &str = "1.0896488 -0.20748557 -1.5406368 0.4019416 -0.7668731 -0.9889563 0.2852093 0.5925741 \
     -0.5085919 -0.28520694 -0.42188492 0.12871924";

/// The same with `mode="fan_out"`.
const KAIMING_FAN_OUT: &str = "0.629109 -0.11979185 -0.889487 0.2320611 -0.4427544 -0.5709742 0.16466565 0.34212282 \
     -0.29363567 -0.1646643 -0.24357536 0.074316084";
