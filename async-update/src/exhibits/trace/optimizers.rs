//! Where case 1 is no longer the same as a synchronous update: an optimizer that remembers past
//! gradients, divides by them, or looks at θ itself.

use super::gpus::{ETA, GPU1, GPU2, THETA_A, Theta, exact, subtract};
use anyhow::{Context, Result, ensure};
use report::{Column, table};
use tch::Tensor;
use tch_parallel::optim::{Adam, AdamOptions, Optimizer, Sgd, SgdOptions};

/// An optimizer of the parameters that it is given.
type Make = fn(Vec<(String, Tensor)>) -> tch_parallel::Result<Box<dyn Optimizer>>;

/// A row of the table.
struct Row {
    name: &'static str,
    make: Make,
    /// Why two steps are not one.
    why: &'static str,
}

const ROWS: [Row; 5] = [
    Row { name: "SGD", make: |theta| sgd(theta, SgdOptions::default()), why: "a sum of steps" },
    Row {
        name: "SGD, momentum 0.5",
        make: |theta| sgd(theta, SgdOptions { momentum: 0.5, ..Default::default() }),
        why: "GPU2's gradient is added again, halved, with GPU1's: -η · 0.5 · g2",
    },
    Row {
        name: "SGD, weight decay 0.5",
        make: |theta| sgd(theta, SgdOptions { weight_decay: 0.5, ..Default::default() }),
        why: "θ decays twice, the second time from θ_b: -η · 0.5 · θ_b",
    },
    Row {
        name: "Adam",
        make: |theta| adam(theta, AdamOptions::default()),
        why: "a step is as long as η whatever the gradient: two steps, or one",
    },
    Row {
        name: "AdamW, weight decay 0.5",
        make: |theta| adam(theta, AdamOptions { weight_decay: 0.5, ..AdamOptions::adamw() }),
        why: "both: two steps, and two decays",
    },
];

fn sgd(
    theta: Vec<(String, Tensor)>,
    options: SgdOptions,
) -> tch_parallel::Result<Box<dyn Optimizer>> {
    Ok(Box::new(Sgd::from_named_parameters(theta, SgdOptions { lr: ETA, ..options })?))
}

fn adam(
    theta: Vec<(String, Tensor)>,
    options: AdamOptions,
) -> tch_parallel::Result<Box<dyn Optimizer>> {
    Ok(Box::new(Adam::from_named_parameters(theta, AdamOptions { lr: ETA, ..options })?))
}

/// What an optimizer makes of θ_a when it gets one gradient after the other.
fn after(make: Make, gradients: &[Theta]) -> Result<Theta> {
    let theta = Tensor::from_slice(&THETA_A).set_requires_grad(true);
    let mut optimizer = make(vec![("theta".into(), theta.shallow_clone())])?;
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
fn endings(make: Make) -> Result<(Theta, Theta)> {
    let [first, second] = [GPU2, GPU1].map(|gpu| gpu.gradient(THETA_A));
    let sum = [first[0] + second[0], first[1] + second[1]];
    Ok((after(make, &[first, second])?, after(make, &[sum])?))
}

/// The table of all optimizers.
pub fn tell() -> Result<String> {
    let mut lines = Vec::new();
    for Row { name, make, why } in ROWS {
        let (asynchronous, synchronous) = endings(make)?;
        let difference = subtract(asynchronous, synchronous);
        ensure!(
            name != "SGD" || difference == [0.0; 2],
            "plain SGD differs by {}",
            exact(difference)
        );
        let cells = [asynchronous, synchronous, difference].map(rounded);
        lines.push([&[name.to_owned()], &cells[..], &[why.to_owned()]].concat());
    }
    let columns = [
        Column::Left("the server's optimizer"),
        Column::Right("g2, then g1"),
        Column::Right("g1 + g2"),
        Column::Right("difference"),
        Column::Left("why"),
    ];
    Ok(format!(
        "With another optimizer, which gets the same gradients of θ_a, the two are not the same:\n\n{}",
        table(&columns, &lines)
    ))
}

/// Adam divides, so not all of its digits are exact.
fn rounded(theta: Theta) -> String {
    // No minus before a zero.
    let [x, y] = theta.map(|x| format!("{:.4}", (x * 1e4).round() / 1e4 + 0.0));
    format!("({x}, {y})")
}

#[cfg(test)]
mod tests {
    use super::super::gpus::add;
    use super::*;

    fn difference(row: usize) -> Theta {
        let (asynchronous, synchronous) = endings(ROWS[row].make).unwrap();
        subtract(asynchronous, synchronous)
    }

    #[test]
    fn only_plain_sgd_does_not_notice() {
        assert_eq!(difference(0), [0.0; 2]);
        for (row, optimizer) in ROWS.iter().enumerate().skip(1) {
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
