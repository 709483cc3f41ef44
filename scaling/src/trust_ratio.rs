//! Optimizers for large batches: each layer moves by a fraction of its weights' norm, however large its gradient is.

use serde::{Deserialize, Serialize};
use tch_parallel::Result;
use tch_parallel::optim::{GroupOptions, StateShape, Step, TensorList, UpdateRule};

/// What LARS and LAMB have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrustRatio {
    pub lr: f64,
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
    /// SGD with momentum and a rate of `lr * |weights| / |gradient|` for each layer (You, Gitman and
    /// Ginsburg, 2017), without decay. The paper's extra factor of 0.001 is part of `lr` here.
    fn lars(&self, mut step: Step<'_>) -> Result<()> {
        let lr = self.lr * ratio(&step, &step.gradients)?;
        let mut momentum = step.zeros_like("momentum_buffer")?;
        momentum.mul_number_(0.9)?;
        momentum.add_scaled_(&step.gradients, lr)?;
        step.parameters.add_scaled_(&momentum, -1.0)
    }
    // ANCHOR_END: lars

    // ANCHOR: lamb
    /// Adam with steps of length `lr * |weights|` per layer, without decay (You and others, 2019).
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
        let lr = self.lr * ratio(&step, &update)?;
        step.parameters.add_scaled_(&update, -lr)
    }
    // ANCHOR_END: lamb
}

// ANCHOR: ratio
/// The norm of the weights divided by that of the update. 1 if either is 0, and for biases and the
/// scales of normalisation layers.
fn ratio(step: &Step<'_>, update: &TensorList) -> Result<f64> {
    let (weights, update) = (norm(&step.parameters)?, norm(update)?);
    let is_scaled = step.parameters[0].dim() > 1 && weights > 0.0 && update > 0.0;
    Ok(if is_scaled { weights / update } else { 1.0 })
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
        let lars = || TrustRatio { lr: 0.1, is_lamb: false };
        let lamb = TrustRatio { lr: 0.1, is_lamb: true };
        let gradient = [0.0, 0.0, 0.0, 2.0, 2.0];
        // After one step, 5 / 2 times the rate, along the gradient.
        let second = 0.9 * 0.5 + 0.1 * 3f64.hypot(3.5);
        for (found, expected) in [
            (moved(lars(), 1, gradient), [3.0, 0.0, 0.0, 3.5, 0.8]),
            (moved(lars(), 2, gradient), [3.0, 0.0, 0.0, 3.5 - second, 0.42]),
            // Adam's first step is the gradient's sign.
            (moved(lamb, 1, [2.0, -2.0, 2.0, 2.0, 2.0]), [2.75, 0.25, -0.25, 3.75, 0.9]),
        ] {
            let is_close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(is_close, "{found:?} {expected:?}");
        }
    }
}
