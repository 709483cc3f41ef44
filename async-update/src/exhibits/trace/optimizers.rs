//! Where case 1 is no longer the same as a synchronous update: an optimizer that remembers past
//! gradients, divides by them, or looks at θ itself.

use super::gpus::{ETA, GPU1, GPU2, THETA_A, Theta, add, subtract};
use anyhow::{Context, Result, ensure};
use minijinja::value::Serde;
use tch::Tensor;
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions};

/// A row of the table.
struct Row {
    name: &'static str,
    optimizer: Options,
    /// Why two steps are not one.
    why: &'static str,
}

enum Options {
    Sgd(SgdOptions),
    Adam(AdamOptions),
}

fn rows() -> [Row; 5] {
    let sgd = SgdOptions { lr: ETA, ..Default::default() };
    let adam = AdamOptions { lr: ETA, ..Default::default() };
    let adamw = AdamOptions { lr: ETA, weight_decay: 0.5, ..AdamOptions::adamw() };
    let row = |name, optimizer, why| Row { name, optimizer, why };
    [
        row("SGD", Options::Sgd(sgd), "a sum of steps"),
        row(
            "SGD, momentum 0.5",
            Options::Sgd(SgdOptions { momentum: 0.5, ..sgd }),
            "GPU2's gradient is added again, halved, with GPU1's: -η · 0.5 · g2",
        ),
        row(
            "SGD, weight decay 0.5",
            Options::Sgd(SgdOptions { weight_decay: 0.5, ..sgd }),
            "θ decays twice, the second time from θ_b: -η · 0.5 · θ_b",
        ),
        row(
            "Adam",
            Options::Adam(adam),
            "a step is as long as η whatever the gradient: two steps, or one",
        ),
        row("AdamW, weight decay 0.5", Options::Adam(adamw), "both: two steps, and two decays"),
    ]
}

/// What an optimizer makes of θ_a when it gets one gradient after the other.
fn after(options: &Options, gradients: &[Theta]) -> Result<Theta> {
    let theta = Tensor::from_slice(&THETA_A).set_requires_grad(true);
    let named = vec![("theta".into(), theta.shallow_clone())];
    let mut optimizer: Box<dyn Optimizer> = match options {
        Options::Sgd(options) => Box::new(Sgd::from_named_parameters(named, *options)?),
        Options::Adam(options) => Box::new(Adam::from_named_parameters(named, *options)?),
    };
    for gradient in gradients {
        optimizer.zero_grad()?;
        // The gradient of a product with a constant is the constant.
        (&theta * Tensor::from_slice(gradient)).sum(tch::Kind::Double).backward();
        optimizer.step()?;
    }
    let theta = Vec::<f64>::try_from(theta.detach())?;
    theta.try_into().ok().context("θ has two elements")
}

/// θ_c, made of one gradient after the other, and of their sum at once. Both gradients belong to θ_a.
fn endings(options: &Options) -> Result<(Theta, Theta)> {
    let [first, second] = [GPU2, GPU1].map(|gpu| gpu.gradient(THETA_A));
    Ok((after(options, &[first, second])?, after(options, &[add(first, second)])?))
}

/// Both endings with each optimizer, how far they are apart, and why.
pub fn compared() -> Result<Vec<(&'static str, [Theta; 3], &'static str)>> {
    let compare = |Row { name, optimizer, why }| {
        let (asynchronous, synchronous) = endings(&optimizer)?;
        let difference = subtract(asynchronous, synchronous);
        ensure!(name != "SGD" || difference == [0.0; 2], "plain SGD differs by {difference:?}");
        Ok((name, [asynchronous, synchronous, difference], why))
    };
    rows().into_iter().map(compare).collect()
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

    fn difference(row: usize) -> Theta {
        let (asynchronous, synchronous) = endings(&rows()[row].optimizer).unwrap();
        subtract(asynchronous, synchronous)
    }

    #[test]
    fn only_plain_sgd_does_not_notice() {
        assert_eq!(difference(0), [0.0; 2]);
        for (row, optimizer) in rows().iter().enumerate().skip(1) {
            assert!(difference(row).iter().all(|x| x.abs() > 0.01), "{}", optimizer.name);
        }
    }

    #[test]
    fn the_differences_are_what_is_said_about_them() {
        let first = GPU2.gradient(THETA_A);
        assert_eq!(difference(1), first.map(|g| -ETA * 0.5 * g));
        // The decay of the first step moves θ_b as well.
        let theta_b = subtract(add(THETA_A, GPU2.step(THETA_A)), THETA_A.map(|x| ETA * 0.5 * x));
        assert_eq!(difference(2), theta_b.map(|x| -ETA * 0.5 * x));
    }
}
