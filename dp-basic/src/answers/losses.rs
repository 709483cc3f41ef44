//! A model that returns its loss: what to do with one loss from each device.

use super::small::{
    FEATURES, difference, equality, gradients, number, ratio, unwrapped, waves, wrapped,
};
use super::{Question, Theme, lines};
use crate::models::TwoTargets;
use anyhow::Result;
use report::Column;
use tch::nn::{Path, VarStore};
use tch::{Kind, Reduction, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions};

pub const THEME: Theme = Theme {
    title: "A model that returns its loss",
    questions: &[
        Question {
            rows: &["S2.16"],
            text: "What does the wrapped model return for its result and its loss?",
            numbers: || {
                let (result, losses) = Wrapped::new(8, 2)?.forward()?;
                Ok(vec![format!("result {:?}, loss {:?}", result.size(), losses.size())])
            },
            answer: "Results are put together along the batch, and a single number from each \
                     device makes a vector (PyTorch warns of that).",
        },
        Question {
            rows: &["S2.18"],
            text: "Can backward begin at that vector?",
            numbers: || {
                let wrapped = Wrapped::new(8, 2)?;
                let (_, losses) = wrapped.forward()?;
                Ok(vec![match wrapped.model.backward(&losses) {
                    Ok(()) => "yes".into(),
                    Err(error) => error.to_string(),
                }])
            },
            answer: "No: take its mean, or its sum, first.",
        },
        Question {
            rows: &["S2.14", "S2.15"],
            text: "Is averaging the returned losses right?",
            numbers: || {
                let rows = [(8, 4), (10, 4), (7, 3), (5, 4)].map(|(rows, devices)| {
                    let mean = mean_of_means(rows, devices)?;
                    Ok(vec![
                        format!("{:?}", mean.chunks),
                        format!("{:.4}", mean.truth),
                        format!("{:.4}", mean.plain),
                        equality(mean.gradients),
                        format!("{:.4}", mean.weighted),
                        equality(mean.weighted_gradients),
                    ])
                });
                lines(&MEANS, rows)
            },
            answer: "For equal chunks exactly; for others each loss has to count by its rows.",
        },
        Question {
            rows: &["S2.19"],
            text: "And what does loss.sum() do instead of loss.mean()?",
            numbers: || {
                [2, 4]
                    .map(|devices| {
                        let times = sum_instead_of_mean(8, devices)?;
                        Ok(format!("{devices} devices: gradients {times:.4} times as large"))
                    })
                    .into_iter()
                    .collect()
            },
            answer: "It multiplies the learning rate by the number of replicas.",
        },
        Question {
            rows: &["S2.17"],
            text: "Does it matter that the loss is a sum for two targets?",
            numbers: || {
                let (together, apart) = two_targets(8, 4)?;
                Ok(vec![format!("mean of the sums {together:.4}, sum of the means {apart:.4}")])
            },
            answer: "No: a mean of sums is the sum of the means.",
        },
        Question {
            rows: &["S2.21"],
            text: "What if reshape(-1) is left out, so that [n, 1] meets [n]?",
            numbers: || {
                let column = column_against_row(4);
                Ok(vec![
                    format!(
                        "{} differences of 4 rows, loss {:.4}",
                        column.differences,
                        number(&column.loss)?
                    ),
                    format!("with it: 4 differences, loss {:.4}", number(&column.right)?),
                ])
            },
            answer: "Every prediction is compared with every target; PyTorch warns and goes on.",
        },
    ],
};

const MEANS: [Column; 6] = [
    Column::Left("rows of each device"),
    Column::Right("true mean"),
    Column::Right("mean of means"),
    Column::Left("gradients"),
    Column::Right("weighted by rows"),
    Column::Left("gradients"),
];

/// The question's model, small, with a batch.
struct Wrapped {
    vs: VarStore,
    model: DataParallel<TwoTargets>,
    /// `x` of `[rows, 6]`, `y` and `y2` of `[rows]`.
    batch: [Tensor; 3],
}

fn build(path: &Path<'_>) -> TwoTargets {
    TwoTargets::new(path, FEATURES, 8)
}

fn batch(rows: i64) -> [Tensor; 3] {
    [waves(&[rows, FEATURES]), waves(&[rows]), waves(&[rows]).square() * 3.0]
}

impl Wrapped {
    fn new(rows: i64, devices: usize) -> Result<Self> {
        let (vs, model) = wrapped(&Devices::cpu(devices)?, DataParallelOptions::default(), build)?;
        Ok(Wrapped { vs, model, batch: batch(rows) })
    }

    /// Results `[rows, 1]` and losses `[devices at work]`.
    fn forward(&self) -> Result<(Tensor, Tensor)> {
        let [x, y, y2] = &self.batch;
        self.forward_with(x, y, y2)
    }

    fn forward_with(&self, x: &Tensor, y: &Tensor, y2: &Tensor) -> Result<(Tensor, Tensor)> {
        let inputs = (x.shallow_clone(), y.shallow_clone(), y2.shallow_clone());
        Ok(self.model.forward(inputs, |replica, (x, y, y2)| replica.forward(&x, &y, &y2))?)
    }

    /// The gradients of what `reduce` makes of the losses, and its value.
    fn gradients(&self, reduce: impl Fn(&Tensor) -> Tensor) -> Result<(f64, Tensor)> {
        let (_, losses) = self.forward()?;
        let loss = reduce(&losses);
        self.vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
        self.model.backward(&loss)?;
        Ok((number(&loss)?, gradients(&self.vs)))
    }
}

struct MeanOfMeans {
    /// Rows of each device.
    chunks: Vec<i64>,
    /// The mean of the devices' losses.
    plain: f64,
    /// The mean in which each counts by its rows.
    weighted: f64,
    /// The loss of the unwrapped model.
    truth: f64,
    /// Between the gradients of the first and the last.
    gradients: f64,
    /// Between the gradients of the second and the last.
    weighted_gradients: f64,
}

fn mean_of_means(rows: i64, devices: usize) -> Result<MeanOfMeans> {
    let (vs, alone) = unwrapped(build);
    let [x, y, y2] = batch(rows);
    let (_, truth) = alone.forward(&x, &y, &y2);
    truth.backward();
    let expected = gradients(&vs);

    let wrapped = Wrapped::new(rows, devices)?;
    let chunks = super::chunks::chunk_sizes(rows, devices)?;
    let shares = Tensor::from_slice(&chunks).to_kind(Kind::Float) / rows as f64;
    let (plain, plain_gradients) = wrapped.gradients(|losses| losses.mean(Kind::Float))?;
    let (weighted, weighted_gradients) =
        wrapped.gradients(|losses| (losses * &shares).sum(Kind::Float))?;
    Ok(MeanOfMeans {
        chunks,
        plain,
        weighted,
        truth: number(&truth)?,
        gradients: difference(&plain_gradients, &expected)?,
        weighted_gradients: difference(&weighted_gradients, &expected)?,
    })
}

/// How many times the gradients of the mean those of the sum are.
fn sum_instead_of_mean(rows: i64, devices: usize) -> Result<f64> {
    let wrapped = Wrapped::new(rows, devices)?;
    let (_, mean) = wrapped.gradients(|losses| losses.mean(Kind::Float))?;
    let (_, sum) = wrapped.gradients(|losses| losses.sum(Kind::Float))?;
    ratio(&sum, &mean)
}

/// The devices' mean of both targets' losses together, and the sum of the means of each.
fn two_targets(rows: i64, devices: usize) -> Result<(f64, f64)> {
    let wrapped = Wrapped::new(rows, devices)?;
    let [x, y, y2] = &wrapped.batch;
    let mean = |y, y2| number(&wrapped.forward_with(x, y, y2)?.1.mean(Kind::Double));
    // Given the same target twice, the model returns twice its loss.
    Ok((mean(y, y2)?, mean(y, y)? / 2.0 + mean(y2, y2)? / 2.0))
}

struct ColumnAgainstRow {
    /// Pairs that were compared.
    differences: usize,
    /// The mean over all of them.
    loss: Tensor,
    /// The mean over each row and its own target.
    right: Tensor,
}

fn column_against_row(rows: i64) -> ColumnAgainstRow {
    let (result, y) = (waves(&[rows, 1]), waves(&[rows]).square());
    ColumnAgainstRow {
        differences: (&result - &y).numel(),
        loss: result.mse_loss(&y, Reduction::Mean),
        right: result.reshape([-1]).mse_loss(&y, Reduction::Mean),
    }
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn losses_are_gathered_into_a_vector_at_which_backward_cannot_begin() {
        let wrapped = Wrapped::new(8, 2).unwrap();
        let (result, losses) = wrapped.forward().unwrap();
        assert_eq!((result.size(), losses.size()), (vec![8, 1], vec![2]));
        let error = wrapped.model.backward(&losses).unwrap_err().to_string();
        assert!(error.contains("only for scalar outputs"), "{error}");
    }

    #[test]
    fn the_mean_of_means_is_right_for_equal_chunks_only_and_the_weighted_one_always() {
        for (rows, devices, chunks) in [
            (8, 4, vec![2; 4]),
            (10, 4, vec![3, 3, 3, 1]),
            (7, 3, vec![3, 3, 1]),
            (5, 4, vec![2, 2, 1]),
        ] {
            let mean = mean_of_means(rows, devices).unwrap();
            assert_eq!(mean.chunks, chunks);
            let even = rows % devices as i64 == 0;
            assert_eq!((mean.plain - mean.truth).abs() <= ROUNDING * mean.truth, even);
            assert_eq!(mean.gradients <= ROUNDING, even, "{chunks:?}: {}", mean.gradients);
            assert_relative_eq!(mean.weighted, mean.truth, max_relative = ROUNDING);
            assert!(mean.weighted_gradients <= ROUNDING, "{chunks:?}: {}", mean.weighted_gradients);
        }
    }

    #[test]
    fn the_sum_of_the_losses_has_gradients_as_many_times_larger_as_there_are_replicas() {
        assert_relative_eq!(sum_instead_of_mean(8, 4).unwrap(), 4.0, max_relative = ROUNDING);
    }

    #[test]
    fn a_mean_of_sums_is_the_sum_of_the_means() {
        let (together, apart) = two_targets(8, 4).unwrap();
        assert_relative_eq!(together, apart, max_relative = ROUNDING);
    }

    #[test]
    fn a_column_against_a_row_compares_all_with_all() {
        let column = column_against_row(4);
        assert_eq!(column.differences, 16);
        assert_ne!(column.loss, column.right);
    }
}
