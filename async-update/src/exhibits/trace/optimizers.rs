//! Where case 1 is no longer the same as a synchronous update: an optimizer that remembers past
//! gradients, divides by them, or looks at θ itself.

use super::gpus::{ETA, GPU1, GPU2, THETA_A, Theta, add, subtract};
use anyhow::{Context, Result};
use minijinja::value::Serde;
use tch::{Kind, Tensor};
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions};

/// The endings with SGD.
pub fn sgd(momentum: f64, weight_decay: f64) -> Result<[Theta; 3]> {
    let options = SgdOptions { lr: ETA, momentum, weight_decay, ..Default::default() };
    endings(|theta| Sgd::from_named_parameters(theta, options))
}

/// The endings with AdamW. Without weight decay this is Adam.
pub fn adamw(weight_decay: f64) -> Result<[Theta; 3]> {
    let options = AdamOptions { lr: ETA, weight_decay, ..AdamOptions::adamw() };
    endings(|theta| Adam::from_named_parameters(theta, options))
}

/// θ_c, made of one gradient after the other, and of their sum at once, and the difference. Both
/// gradients belong to θ_a.
fn endings<O: Optimizer>(
    optimizer: impl Fn(Vec<(String, Tensor)>) -> tch_parallel::Result<O>,
) -> Result<[Theta; 3]> {
    let after = |gradients: &[Theta]| -> Result<Theta> {
        let theta = Tensor::from_slice(&THETA_A).set_requires_grad(true);
        let mut optimizer = optimizer(vec![("theta".into(), theta.shallow_clone())])?;
        for gradient in gradients {
            optimizer.zero_grad()?;
            // The gradient of a product with a constant is the constant.
            (&theta * Tensor::from_slice(gradient)).sum(Kind::Double).backward();
            optimizer.step()?;
        }
        let theta = Vec::try_from(theta.detach())?;
        theta.try_into().ok().context("θ has two elements")
    };
    let [first, second] = [GPU2, GPU1].map(|gpu| gpu.gradient(THETA_A));
    let (asynchronous, synchronous) = (after(&[first, second])?, after(&[add(first, second)])?);
    Ok([asynchronous, synchronous, subtract(asynchronous, synchronous)])
}

/// Adam divides, so not all of its digits are exact.
pub fn rounded(Serde(theta): Serde<Theta>) -> String {
    // No minus before a zero.
    let [x, y] = theta.map(|x| (x * 1e4).round() / 1e4 + 0.0);
    format!("({x:.4}, {y:.4})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed is rounded.
    #[test]
    fn the_differences_of_sgd_are_exactly_what_is_said_about_them() {
        let [_, _, plain] = sgd(0.0, 0.0).unwrap();
        assert_eq!(plain, [0.0; 2]);
        let first = GPU2.gradient(THETA_A);
        let [_, _, with_momentum] = sgd(0.5, 0.0).unwrap();
        assert_eq!(with_momentum, first.map(|g| -ETA * 0.5 * g));
        // The decay of the first step moves θ_b as well.
        let theta_b = subtract(add(THETA_A, GPU2.step(THETA_A)), THETA_A.map(|x| ETA * 0.5 * x));
        let [_, _, with_decay] = sgd(0.0, 0.5).unwrap();
        assert_eq!(with_decay, theta_b.map(|x| -ETA * 0.5 * x));
    }
}
