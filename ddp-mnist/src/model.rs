//! The tutorial's classifier: 784 pixels to 10 digits, 118,272 parameters.

use tch::nn::{self, Path};
use tch_parallel::nn::{LinearOptions, linear};

// ANCHOR: mlp
/// `nn.Sequential(Linear(784, 128), ReLU(), Dropout(0.2), Linear(128, 128), ReLU(),
/// Linear(128, 10, bias=False))`
///
/// Maps images `[batch, 1, 28, 28]` to logits `[batch, 10]`. The numbers in the names are the
/// positions in PyTorch's `Sequential`, so that Python can load these weights and the reverse.
pub fn mlp(path: &Path<'_>) -> nn::SequentialT {
    nn::seq_t()
        .add_fn(|images| images.flat_view())
        .add(linear(path / "0", 28 * 28, 128, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add_fn_t(|x, train| x.dropout(0.2, train))
        .add(linear(path / "3", 128, 128, LinearOptions::default()))
        .add_fn(|x| x.relu())
        .add(linear(path / "5", 128, 10, LinearOptions { bias: false }))
}
// ANCHOR_END: mlp

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Tensor};

    #[test]
    fn it_has_the_tutorials_118_272_parameters() {
        let vs = nn::VarStore::new(Device::Cpu);
        let _ = mlp(&vs.root());
        let parameters: usize = vs.trainable_variables().iter().map(Tensor::numel).sum();
        assert_eq!(parameters, 118_272);
    }
}
