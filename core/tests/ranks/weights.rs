//! A model whose gradients a test chooses.

use crate::prelude::*;

#[derive(Debug)]
pub struct Weights {
    pub matrix: Tensor,
    pub vector: Tensor,
}

impl Weights {
    /// The weights at this path, zeros at first.
    pub fn new(path: &nn::Path<'_>) -> Weights {
        let zeros = |name: &str, size: &[i64]| path.entry(name).or_zeros(size);
        Weights { matrix: zeros("matrix", &[24, 16]), vector: zeros("vector", &[16]) }
    }

    pub fn loss(&self, [matrix, vector]: &[Tensor; 2]) -> Tensor {
        (&self.matrix * matrix).sum(Kind::Float) + (&self.vector * vector).sum(Kind::Float)
    }
}

pub type Model = DistributedDataParallel<Weights>;

/// A cap so small that every parameter has its own bucket from the second step on.
pub fn two_buckets() -> DdpOptions {
    DdpOptions { bucket_cap_mb: Some(1e-5), ..Default::default() }
}

/// The same with a communication hook.
pub fn with_hook(hook: impl CommHook + 'static) -> DdpOptions {
    DdpOptions { comm_hook: Some(Box::new(hook)), ..two_buckets() }
}

pub fn model(group: &ProcessGroup, options: DdpOptions) -> (VarStore, Model) {
    ddp(group, options, Weights::new)
}

/// Gradients that differ from rank to rank and from step to step, and that 16 bits cannot represent.
pub fn own(rank: usize, step: i64) -> [Tensor; 2] {
    let numbers = |len: i64, offset: f64| (Tensor::arange(len, FLOAT_CPU) * 0.37 + offset).sin();
    let offset = rank as f64 + step as f64 * 5.0;
    [numbers(24 * 16, offset).view([24, 16]), numbers(16, offset + 0.5)]
}

/// What the exchange makes of two ranks' gradients.
pub fn mean(step: i64) -> [Tensor; 2] {
    let [[a_matrix, a_vector], [b_matrix, b_vector]] = [own(0, step), own(1, step)];
    [a_matrix / 2.0 + b_matrix / 2.0, a_vector / 2.0 + b_vector / 2.0]
}

/// A forward and a backward pass in which this rank's gradients are `gradients`.
pub fn backward(vs: &VarStore, model: &Model, gradients: &[Tensor; 2]) -> Result<()> {
    Sgd::new(vs, SgdOptions::default())?.zero_grad()?;
    model.backward(&model.forward(|weights| weights.loss(gradients))?)
}

pub fn gradients(vs: &VarStore) -> [Tensor; 2] {
    [0, 1].map(|part| vs.trainable_variables()[part].grad().copy())
}
