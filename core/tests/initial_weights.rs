//! The same seed draws PyTorch's weights. One test in a program of its own: all tests of a program
//! draw from the one global generator, at once.

#![allow(clippy::unwrap_used, reason = "in a test a panic is how to fail")]

use tch::nn::VarStore;
use tch::{Device, Tensor};
use tch_parallel::nn::{EmbeddingOptions, LinearOptions, embedding, linear};

#[test]
fn the_same_seed_draws_pytorchs_weights() {
    tch::manual_seed(0);
    let layer = linear(VarStore::new(Device::Cpu).root(), 3, 2, LinearOptions::default());
    assert_eq!(values(&layer.ws), LINEAR_WEIGHT);
    assert_eq!(values(layer.bs.as_ref().unwrap()), LINEAR_BIAS);

    let mut padded = EMBEDDING_WEIGHT;
    padded[6..9].fill(0.0);
    for (padding_idx, weight) in [(None, EMBEDDING_WEIGHT), (Some(2), padded)] {
        tch::manual_seed(0);
        let options = EmbeddingOptions { padding_idx };
        let layer = embedding(VarStore::new(Device::Cpu).root(), 4, 3, options);
        assert_eq!(values(&layer.ws), weight);
    }
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.view([-1])).unwrap()
}

/// `torch.manual_seed(0); layer = nn.Linear(3, 2)` in PyTorch 2.11.
const LINEAR_WEIGHT: [f32; 6] =
    [-0.0043225177, 0.30971584, -0.47518533, -0.4248946, -0.22236897, 0.15482073];
const LINEAR_BIAS: [f32; 2] = [-0.011439145, 0.45777494];

/// `torch.manual_seed(0); nn.Embedding(4, 3).weight`. Fewer than 16 numbers: more are drawn by
/// kernels that round otherwise from processor to processor.
const EMBEDDING_WEIGHT: [f32; 12] = [
    1.5409961,
    -0.2934289,
    -2.1787894,
    0.56843126,
    -1.0845224,
    -1.3985955,
    0.40334684,
    0.83802634,
    -0.7192576,
    -0.40334353,
    -0.59663534,
    0.18203649,
];
