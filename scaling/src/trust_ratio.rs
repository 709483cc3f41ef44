//! Optimizers for large batches: each layer moves by a part of its own weights' norm, however large its gradient is.

use serde::{Deserialize, Serialize};
use tch_parallel::Result;
use tch_parallel::optim::{GroupOptions, StateShape, Step, TensorList, UpdateRule};

/// What LARS and LAMB have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrustRatio {
    pub lr: f64,
    pub weight_decay: f64,
    pub is_lamb: bool,
}

impl GroupOptions for TrustRatio {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
}

impl UpdateRule for TrustRatio {
    fn name(&self) -> &'static str {
        if self.is_lamb { "LAMB" } else { "LARS" }
    }

    fn state_layout(&self) -> Vec<(&'static str, StateShape)> {
        use StateShape::{Parameter, Scalar};
        match self.is_lamb {
            true => vec![("step", Scalar), ("exp_avg", Parameter), ("exp_avg_sq", Parameter)],
            false => vec![("momentum_buffer", Parameter)],
        }
    }

    fn step(&self, step: Step<'_>) -> Result<()> {
        if self.is_lamb { self.lamb(step) } else { self.lars(step) }
    }
}

impl TrustRatio {
    // ANCHOR: lars
    /// SGD with momentum, whose rate for a layer is `lr * |weights| / |gradient|` (You, Gitman and Ginsburg, 2017). The
    /// paper multiplies it by a coefficient of 0.001, which `lr` contains here.
    fn lars(&self, mut step: Step<'_>) -> Result<()> {
        let (mut update, mut lr) = (step.gradients.copy()?, self.lr);
        if is_scaled(&step) {
            let decay = self.weight_decay * norm(&step.parameters)?;
            lr *= ratio(&step, norm(&update)? + decay)?;
            update.add_scaled_(&step.parameters, self.weight_decay)?;
        }
        let mut momentum = step.zeros_like("momentum_buffer")?;
        momentum.mul_number_(0.9)?;
        momentum.add_scaled_(&update, lr)?;
        step.parameters.add_scaled_(&momentum, -1.0)
    }
    // ANCHOR_END: lars

    // ANCHOR: lamb
    /// Adam, whose step of a layer has the length `lr * |weights|` (You and others, 2019).
    fn lamb(&self, mut step: Step<'_>) -> Result<()> {
        let steps = step.count()?[0];
        let mut means = step.zeros_like("exp_avg")?;
        means.lerp_(&step.gradients, 1.0 - 0.9)?;
        let mut squares = step.zeros_like("exp_avg_sq")?;
        squares.mul_number_(0.999)?;
        squares.addcmul_(&step.gradients, &step.gradients, 1.0 - 0.999)?;
        let mut root = squares.mul_numbers(&[1.0 / (1.0 - 0.999f64.powf(steps))])?.sqrt()?;
        root.add_number_(1e-6)?;
        let mut update = means.mul_numbers(&[1.0 / (1.0 - 0.9f64.powf(steps))])?;
        update.div_(&root)?;
        let mut lr = self.lr;
        if is_scaled(&step) {
            update.add_scaled_(&step.parameters, self.weight_decay)?;
            lr *= ratio(&step, norm(&update)?)?;
        }
        step.parameters.add_scaled_(&update, -lr)
    }
    // ANCHOR_END: lamb
}

// ANCHOR: ratio
/// Biases, and what a normalisation multiplies by, get neither a ratio nor weight decay.
fn is_scaled(step: &Step<'_>) -> bool {
    step.parameters[0].dim() > 1
}

/// The norm of the weights divided by that of the update, or 1 if either is 0.
fn ratio(step: &Step<'_>, update: f64) -> Result<f64> {
    let weights = norm(&step.parameters)?;
    Ok(if weights > 0.0 && update > 0.0 { weights / update } else { 1.0 })
}
// ANCHOR_END: ratio

/// A rule gets one parameter at a time if its options have no `foreach`.
fn norm(tensors: &TensorList) -> Result<f64> {
    Ok(tensors.norm(2.0)?[0].f_double_value(&[])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor, nn::VarStore};
    use tch_parallel::optim::{Optimizer, ParamGroupOptimizer};

    /// A matrix of norm 5 and a bias, after this many steps along the same gradient.
    fn moved(options: TrustRatio, steps: usize, gradient: [f32; 5]) -> Vec<f64> {
        let vs = VarStore::new(Device::Cpu);
        let matrix = vs.root().var_copy("weight", &Tensor::from_slice2(&[[3f32, 0.0], [0.0, 4.0]]));
        let bias = vs.root().ones("bias", &[1]);
        let mut optimizer = ParamGroupOptimizer::new(&vs, options).unwrap();
        let all = || Tensor::cat(&[matrix.flatten(0, -1), bias.shallow_clone()], 0);
        for _ in 0..steps {
            optimizer.zero_grad().unwrap();
            (all() * Tensor::from_slice(&gradient)).sum(Kind::Float).backward();
            optimizer.step().unwrap();
        }
        Vec::try_from(all().to_kind(Kind::Double)).unwrap()
    }

    #[test]
    fn steps_are_those_of_the_papers() {
        let lars = || TrustRatio { lr: 0.1, weight_decay: 0.1, is_lamb: false };
        let lamb = TrustRatio { lr: 0.1, weight_decay: 1.0, is_lamb: true };
        let gradient = [0.0, 0.0, 0.0, 2.0, 2.0];
        // After one step, 5 / (2 + 0.1 * 5) = 2 times the rate, along the gradient and a tenth of the weights.
        let norm = 2.94f64.hypot(3.52);
        let ratio = 0.1 * norm / (2.0 + 0.1 * norm);
        let [left, right] = [0.9 * 0.06 + ratio * 0.294, 0.9 * 0.48 + ratio * 2.352];
        // Adam's first step is the gradient's sign; to that of the matrix, the weights are added.
        let length = 0.1 * 5.0 / 43f64.sqrt();
        for (found, expected) in [
            (moved(lars(), 1, gradient), [2.94, 0.0, 0.0, 3.52, 0.8]),
            (moved(lars(), 2, gradient), [2.94 - left, 0.0, 0.0, 3.52 - right, 0.42]),
            (
                moved(lamb, 1, [2.0, -2.0, 2.0, 2.0, 2.0]),
                [3.0 - 4.0 * length, length, -length, 4.0 - 5.0 * length, 0.9],
            ),
        ] {
            assert!(
                found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5),
                "{found:?} {expected:?}"
            );
        }
    }
}
