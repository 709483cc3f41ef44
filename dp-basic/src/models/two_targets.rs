//! `My_Model` of the forum question on understanding DataParallel: it returns its result and its
//! loss.

use tch::nn::{Linear, Module, Path};
use tch::{Reduction, Tensor};
use tch_parallel::nn::{LinearOptions, linear};

/// `Linear`, `ReLU`, `Linear` to one number, and the sum of that number's errors against two
/// targets.
#[derive(Debug)]
pub struct TwoTargets {
    linear1: Linear,
    classifier: Linear,
}

impl TwoTargets {
    /// Numbers in a row of the question's input.
    pub const FEATURES: i64 = 768;
    /// Units of the question's hidden layer, with which the model has 59,136,001 parameters.
    pub const HIDDEN: i64 = 76_800;

    pub fn new(path: &Path<'_>, features: i64, hidden: i64) -> Self {
        TwoTargets {
            linear1: linear(path / "linear1", features, hidden, LinearOptions::default()),
            classifier: linear(path / "classifier", hidden, 1, LinearOptions::default()),
        }
    }

    /// Rows `[batch, features]` and two targets `[batch]` to the result, `[batch, 1]`, and the
    /// loss, a single number.
    pub fn forward(&self, x: &Tensor, y: &Tensor, y2: &Tensor) -> (Tensor, Tensor) {
        // ANCHOR: forward
        let result = self.classifier.forward(&self.linear1.forward(x).relu());
        let column = result.reshape([-1]);
        let loss1 = column.mse_loss(y, Reduction::Mean);
        let loss2 = column.mse_loss(y2, Reduction::Mean);
        (result, loss1 + loss2)
        // ANCHOR_END: forward
    }
}
