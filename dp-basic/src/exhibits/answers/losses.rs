//! A model that returns its loss, and what to do with the losses of all devices.

use super::{forward::chunk_sizes, toy::*};
use crate::models::TwoTargets;
use anyhow::Result;
use tch::{Kind, Reduction, Tensor, nn::Path};

/// The question's model with fewer units.
fn small(path: &Path<'_>) -> TwoTargets {
    TwoTargets::new(path, FEATURES, 8)
}

/// Inputs `[rows, 6]` and two targets `[rows]`.
fn rows_and_targets(rows: i64) -> (Tensor, Tensor, Tensor) {
    (waves(&[rows, FEATURES]), waves(&[rows]), waves(&[rows]).square() * 3.0)
}

/// The shapes of the wrapped model's results and losses (S2.16), and whether a backward pass can start there (S2.18).
pub fn returned() -> Result<(Vec<i64>, Vec<i64>, String)> {
    let (_vs, model) = wrapped(2, small)?;
    let (results, losses) = model.forward(rows_and_targets(8), TwoTargets::forward)?;
    let passed = model.backward(&losses).map_or_else(|error| error.to_string(), |()| "yes".into());
    Ok((results.size(), losses.size(), passed))
}

/// A training step with the loss that `reduce` computes from the devices' losses.
fn step_with(rows: i64, devices: usize, reduce: impl Fn(&Tensor) -> Tensor) -> Result<Outcome> {
    let (vs, model) = wrapped(devices, small)?;
    train(&vs, &model, || {
        let (_results, losses) = model.forward(rows_and_targets(rows), TwoTargets::forward)?;
        Ok(reduce(&losses))
    })
}

/// The loss of the unwrapped model; the mean of the devices' losses, and the difference between its gradients and the
/// unwrapped model's; and both again with each loss weighted by its rows (S2.14, S2.15).
pub fn mean_of_means(rows: i64, devices: usize) -> Result<[f64; 5]> {
    let (vs, alone) = unwrapped(small);
    let (_, truth) = alone.forward(rows_and_targets(rows));
    truth.backward();
    let apart = |found: &Outcome| difference(&found.gradients, &gradients(&vs));

    let plain = step_with(rows, devices, |losses| losses.mean(Kind::Float))?;
    let parts = Tensor::from_slice(&chunk_sizes(rows, devices)?).to_kind(Kind::Float) / rows as f64;
    let weighted = step_with(rows, devices, |losses| (losses * &parts).sum(Kind::Float))?;
    Ok([number(&truth), plain.loss, apart(&plain), weighted.loss, apart(&weighted)])
}

/// The ratio of the gradients of the losses' sum to those of their mean (S2.19).
pub fn sum_for_mean(rows: i64, devices: usize) -> Result<f64> {
    let mean = step_with(rows, devices, |losses| losses.mean(Kind::Float))?;
    let sum = step_with(rows, devices, |losses| losses.sum(Kind::Float))?;
    Ok(ratio(&sum.gradients, &mean.gradients))
}

/// The mean over the devices of the loss for both targets, and the sum of the means for each target alone (S2.17).
pub fn two_targets(rows: i64, devices: usize) -> Result<(f64, f64)> {
    let (_vs, model) = wrapped(devices, small)?;
    let (x, y, y2) = rows_and_targets(rows);
    let mean = |y: &Tensor, y2: &Tensor| {
        let inputs = (x.shallow_clone(), y.shallow_clone(), y2.shallow_clone());
        let (_results, losses) = model.forward(inputs, TwoTargets::forward)?;
        anyhow::Ok(number(&losses.mean(Kind::Double)))
    };
    // Given the same target twice, the model returns twice its loss.
    Ok((mean(&y, &y2)?, mean(&y, &y)? / 2.0 + mean(&y2, &y2)? / 2.0))
}

/// A column of results minus a row of targets: the number of differences, their mean square, and the
/// mean square if each row is compared only with its own target (S2.21).
pub fn column_against_row(rows: i64) -> (usize, f64, f64) {
    let (result, y) = (waves(&[rows, 1]), waves(&[rows]).square());
    let loss = number(&result.mse_loss(&y, Reduction::Mean));
    let right = number(&result.reshape([-1]).mse_loss(&y, Reduction::Mean));
    ((&result - &y).numel(), loss, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn the_mean_of_means_is_right_for_equal_chunks_only_and_the_weighted_one_always() {
        for (rows, devices, chunks) in [
            (8, 4, vec![2; 4]),
            (10, 4, vec![3, 3, 3, 1]),
            (7, 3, vec![3, 3, 1]),
            (5, 4, vec![2, 2, 1]),
        ] {
            assert_eq!(chunk_sizes(rows, devices).unwrap(), chunks);
            let [truth, plain, apart, exact, exact_apart] = mean_of_means(rows, devices).unwrap();
            let even = rows % devices as i64 == 0;
            assert_eq!((plain - truth).abs() <= ROUNDING * truth, even);
            assert_eq!(apart <= ROUNDING, even, "{chunks:?}: {apart}");
            assert_relative_eq!(exact, truth, max_relative = ROUNDING);
            assert!(exact_apart <= ROUNDING, "{chunks:?}: {exact_apart}");
        }
    }

    #[test]
    fn the_sum_of_the_losses_has_gradients_as_many_times_larger_as_there_are_replicas() {
        assert_relative_eq!(sum_for_mean(8, 4).unwrap(), 4.0, max_relative = ROUNDING);
    }

    #[test]
    fn a_mean_of_sums_is_the_sum_of_the_means() {
        let (together, apart) = two_targets(8, 4).unwrap();
        assert_relative_eq!(together, apart, max_relative = ROUNDING);
    }
}
