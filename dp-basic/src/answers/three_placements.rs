//! One training step, with the loss in three places. Compare the parts between the anchors: they
//! are what a program has to change.

use super::small::{batch, gradients, mlp, number, set_weights};
use anyhow::Result;
use tch::Tensor;
use tch::nn::{Module, Path, Sequential, VarStore};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};

/// What a step has come to.
#[derive(Debug)]
pub struct Outcome {
    /// The loss of the whole batch.
    pub loss: f64,
    /// All gradients, in one row.
    pub gradients: Tensor,
}

/// Outputs are gathered, and the loss is computed on one device.
pub fn after_gathering(devices: &Devices, rows: i64) -> Result<Outcome> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: after_gathering
    let model = DataParallel::new(&vs, devices, mlp)?;
    set_weights(&vs);
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = logits.cross_entropy_for_logits(&labels);
    model.backward(&loss)?;
    // ANCHOR_END: after_gathering
    Ok(Outcome { loss: number(&loss)?, gradients: gradients(&vs) })
}

/// The model computes its loss; what is gathered is a number from each device.
pub fn in_the_model(devices: &Devices, rows: i64) -> Result<Outcome> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: in_the_model
    let model = DataParallel::new(&vs, devices, WithLoss::new)?;
    set_weights(&vs);
    let losses = model.forward((inputs, labels), |model, (x, y)| model.forward(&x, &y))?;
    let loss = losses.mean(tch::Kind::Float);
    model.backward(&loss)?;
    // ANCHOR_END: in_the_model
    Ok(Outcome { loss: number(&loss)?, gradients: gradients(&vs) })
}

/// [`mlp`] with its loss.
#[derive(Debug)]
struct WithLoss(Sequential);

impl WithLoss {
    fn new(path: &Path<'_>) -> Self {
        WithLoss(mlp(path))
    }

    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.0.forward(x).cross_entropy_for_logits(y)
    }
}

/// Outputs stay where they are, and so does the loss.
pub fn in_parallel(devices: &Devices, rows: i64) -> Result<Outcome> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: in_parallel
    let model = DataParallelModel::new(&vs, devices, mlp)?;
    let criterion = DataParallelCriterion::new(|logits: &Tensor, labels: &Tensor| {
        logits.cross_entropy_for_logits(labels)
    });
    set_weights(&vs);
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = criterion.forward(logits, labels)?;
    let value = number(loss.value())?;
    loss.backward()?;
    // ANCHOR_END: in_parallel
    Ok(Outcome { loss: value, gradients: gradients(&vs) })
}
