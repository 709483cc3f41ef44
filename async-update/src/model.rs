//! The model that every method trains: a function of images and of one vector, θ.
//!
//! A parameter server sends θ, a ring cuts θ's gradient into chunks, averaging averages θ: with all
//! parameters in one tensor, each of these is one operation, and reads as the article draws it.

use report::Pass;
use std::{array, sync::Arc};
use tch::{Device, Kind, Tensor, nn::VarStore};
use tch_parallel::data::{DataLoader, Mnist, SequentialSampler};
use tch_parallel::{Result, nn::LinearOptions, nn::linear};

const PIXELS: i64 = 28 * 28;
const HIDDEN: i64 = 128;
const DIGITS: i64 = 10;

/// The shapes of the parameters, in the order in which they lie in θ.
const SHAPES: [&[i64]; 4] = [&[HIDDEN, PIXELS], &[HIDDEN], &[DIGITS, HIDDEN], &[DIGITS]];

/// How long θ is: 101,770.
pub const PARAMETERS: usize = (HIDDEN * PIXELS + HIDDEN + DIGITS * HIDDEN + DIGITS) as usize;

/// θ at the beginning, `[PARAMETERS]`, drawn as PyTorch initialises `nn.Linear`.
pub fn initial_parameters(seed: i64) -> Tensor {
    tch::manual_seed(seed);
    let vs = VarStore::new(Device::Cpu);
    let _ = linear(vs.root() / "0", PIXELS, HIDDEN, LinearOptions::default());
    let _ = linear(vs.root() / "2", HIDDEN, DIGITS, LinearOptions::default());
    let flat = |parameter: &Tensor| parameter.detach().flatten(0, -1);
    Tensor::cat(&vs.trainable_variables().iter().map(flat).collect::<Vec<_>>(), 0)
}

/// Room for θ or its gradient.
pub fn zeros() -> Tensor {
    Tensor::zeros([PARAMETERS as i64], (Kind::Float, Device::Cpu))
}

/// `Linear(784, 128), ReLU, Linear(128, 10)`: images `[batch, 1, 28, 28]` become logits `[batch, 10]`.
pub fn forward(theta: &Tensor, images: &Tensor) -> Result<Tensor> {
    // Views into θ.
    let lengths = SHAPES.map(|shape| shape.iter().product::<i64>());
    let parts = theta.f_split_with_sizes(lengths, 0)?;
    let [weight_0, bias_0, weight_2, bias_2] = array::from_fn(|i| parts[i].view(SHAPES[i]));
    let hidden = images.f_flatten(1, -1)?.f_linear(&weight_0, Some(&bias_0))?.f_relu()?;
    Ok(hidden.f_linear(&weight_2, Some(&bias_2))?)
}

/// The loss of a batch, and its gradient with respect to θ, `[PARAMETERS]`. They are computed on
/// `device`; θ and the gradient are on the CPU.
pub fn loss_and_gradient(
    theta: &Tensor,
    images: &Tensor,
    labels: &Tensor,
    device: Device,
) -> Result<(f32, Tensor)> {
    let theta = theta.detach().f_to(device)?.set_requires_grad(true);
    let logits = forward(&theta, &images.f_to(device)?)?;
    let loss = logits.cross_entropy_for_logits(&labels.f_to(device)?);
    let gradient = Tensor::f_run_backward(&[&loss], &[&theta], false, false)?.swap_remove(0);
    Ok((f32::try_from(&loss)?, gradient.f_to(Device::Cpu)?))
}

/// The mean loss over a data set, and the share of right answers.
pub fn evaluate(theta: &Tensor, data: &Arc<Mnist>) -> Result<(f64, f64)> {
    let loader = DataLoader::new(Arc::clone(data), SequentialSampler, 1000)?;
    let mut pass = Pass::default();
    for batch in pass.batches(loader.epoch(0)?, Device::Cpu) {
        let (images, labels) = batch?;
        let logits = tch::no_grad(|| forward(theta, &images))?;
        let loss = logits.cross_entropy_for_logits(&labels);
        pass.step([&loss, &logits.accuracy_for_logits(&labels)], labels.size()[0])?;
    }
    let [loss, accuracy] = pass.meters().numbers;
    Ok((loss.avg(), accuracy.avg()))
}
