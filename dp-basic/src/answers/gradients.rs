//! The way back: whose gradient goes where, and why gradients are summed.

use super::small::{
    batch, difference, equality, gradients, mlp, number, on_devices, ratio, reference, set_weights,
    unwrapped,
};
use super::{Question, Theme};
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tch::Tensor;
use tch::nn::{Module, VarStore};
use tch_parallel::data_parallel::{DataParallelCriterion, DataParallelModel, scatter};
use tch_parallel::{Devices, LogicalDevice};

pub const THEME: Theme = Theme {
    title: "The way back",
    questions: &[
        Question {
            rows: &["S0.11", "S2.6", "S2.7"],
            text: "Is the loss scattered, is there a loss for each device?",
            numbers: || {
                let slices = slices(10, 4)?;
                Ok(slices
                    .iter()
                    .map(|slice| {
                        format!(
                            "{}: gradient of its output, {:?}, and these rows of dLoss/dOutput: {}",
                            slice.device,
                            slice.shape,
                            equality(slice.difference)
                        )
                    })
                    .collect())
            },
            answer: "No: there is one loss, and a slice of its gradient with respect to the \
                     gathered output goes to each device.",
        },
        Question {
            rows: &["S2.11"],
            text: "A figure shows a loss on each device: does it come to the same?",
            numbers: || {
                let figure = figure(8, 2)?;
                Ok(vec![
                    format!(
                        "losses on the devices: {:.4?}, their mean {:.4}",
                        figure.losses, figure.mean
                    ),
                    format!("the one loss of the gathered outputs: {:.4}", figure.one),
                    format!("the gradients: {}", equality(figure.difference)),
                ])
            },
            answer: "The figure is the variant with a parallel criterion; with equal chunks both \
                     give the same gradients.",
        },
        Question {
            rows: &["S2.12"],
            text: "Why are the replicas' gradients summed and not averaged?",
            numbers: || {
                let shards = shards(8, 4, Reduction::MeanOfBatch)?;
                Ok(vec![
                    format!(
                        "loss = mean over the batch: the sum of 4 chunks' gradients is {:.4} of the \
                         whole gradient",
                        shards.sum
                    ),
                    format!("their average is {:.4} of it", shards.average),
                    format!("what DataParallel gives: {}", equality(shards.data_parallel)),
                ])
            },
            answer: "The loss has divided by the size of the whole batch already; dividing by the \
                     number of devices once more makes gradients too small by as much.",
        },
        Question {
            rows: &["S2.12", "S2.13"],
            text: "Why does DistributedDataParallel average, and when is that wrong?",
            numbers: || {
                let own = shards(8, 4, Reduction::MeanOfChunk)?;
                let sum = shards(8, 4, Reduction::Sum)?;
                Ok(vec![
                    format!(
                        "loss = mean over a rank's own rows: the average is {:.4} of the whole \
                         gradient",
                        own.average
                    ),
                    format!(
                        "loss = sum: the sum is {:.4} of it, the average {:.4}",
                        sum.sum, sum.average
                    ),
                ])
            },
            answer: "Each rank divides by its own rows only, so that averaging is right; of a \
                     summed loss it leaves 1 / ranks (the arithmetic of 4 ranks in one process; \
                     the tests of DistributedDataParallel run real ones).",
        },
    ],
};

struct Slice {
    device: LogicalDevice,
    /// Of the replica's output.
    shape: Vec<i64>,
    /// Between the gradient that has reached the output and those rows of dLoss/dOutput.
    difference: f64,
}

/// Watches the gradient of each replica's output on its way back.
fn slices(rows: i64, devices: usize) -> Result<Vec<Slice>> {
    let (inputs, labels) = batch(rows);
    let (_vs, model) = on_devices(devices)?;
    // A leaf of zeros that is added to an output gets the output's gradient.
    let probes = Mutex::new(BTreeMap::new());
    let logits = model.forward(inputs, |module, x| {
        let output = module.forward(&x);
        let probe = output.zeros_like().set_requires_grad(true);
        let probed = output + &probe;
        let device = LogicalDevice::of(&probe);
        probes.lock().unwrap_or_else(PoisonError::into_inner).insert(device, probe);
        probed
    })?;
    model.backward(&logits.cross_entropy_for_logits(&labels))?;

    let gathered = logits.detach().set_requires_grad(true);
    gathered.cross_entropy_for_logits(&labels).backward();
    let whole = gathered.grad();
    let mut start = 0;
    probes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .map(|(device, probe)| {
            let rows = probe.size()[0];
            let expected = whole.narrow(0, start, rows);
            start += rows;
            Ok(Slice {
                device,
                shape: probe.size(),
                difference: difference(&probe.grad(), &expected)?,
            })
        })
        .collect()
}

struct Figure {
    /// On each device, of its own rows.
    losses: Vec<f64>,
    /// What the parallel criterion makes of them.
    mean: f64,
    /// Of the gathered outputs.
    one: f64,
    /// Between the gradients of both.
    difference: f64,
}

fn figure(rows: i64, devices: usize) -> Result<Figure> {
    let (inputs, labels) = batch(rows);
    let list = Devices::cpu(devices)?;
    let vs = VarStore::new(list.first().into());
    let model = DataParallelModel::new(&vs, &list, mlp)?;
    set_weights(&vs);
    let outputs = model.f_forward_t(&inputs, true)?;
    let pairs = outputs.parts().iter().zip(scatter(&labels, &list, 0)?);
    let losses = pairs
        .map(|(output, labels)| number(&output.cross_entropy_for_logits(&labels)))
        .collect::<Result<_>>()?;
    let criterion = DataParallelCriterion::new(|output: &Tensor, labels: &Tensor| {
        output.cross_entropy_for_logits(labels)
    });
    let loss = criterion.forward(outputs, labels.shallow_clone())?;
    let mean = number(loss.value())?;
    loss.backward()?;

    let (one_vs, one) = on_devices(devices)?;
    let loss = one.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels);
    one.backward(&loss)?;
    Ok(Figure {
        losses,
        mean,
        one: number(&loss)?,
        difference: difference(&gradients(&vs), &gradients(&one_vs))?,
    })
}

/// What a chunk's loss is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    /// Its sum, divided by the rows of the whole batch: what DataParallel has.
    MeanOfBatch,
    /// Its sum, divided by its own rows: what a rank of DistributedDataParallel has.
    MeanOfChunk,
    /// Its sum.
    Sum,
}

struct Shards {
    /// The sum of the chunks' gradients, in terms of the whole batch's.
    sum: f64,
    /// Their average.
    average: f64,
    /// Between DataParallel's gradient and that of the mean over the whole batch.
    data_parallel: f64,
}

/// The gradients of a batch's chunks, each computed by itself.
fn shards(rows: i64, devices: usize, reduction: Reduction) -> Result<Shards> {
    let (inputs, labels) = batch(rows);
    let (_, whole) = reference(rows)?;
    let expected = match reduction {
        Reduction::Sum => &whole * rows as f64,
        Reduction::MeanOfBatch | Reduction::MeanOfChunk => whole.shallow_clone(),
    };
    let mut sum = expected.zeros_like();
    let chunks =
        scatter(&(inputs.shallow_clone(), labels.shallow_clone()), &Devices::cpu(devices)?, 0)?;
    for (inputs, labels) in chunks {
        let (vs, model) = unwrapped(mlp);
        let own = labels.size()[0];
        let scale = match reduction {
            Reduction::MeanOfBatch => own as f64 / rows as f64,
            Reduction::MeanOfChunk => 1.0,
            Reduction::Sum => own as f64,
        };
        (model.forward(&inputs).cross_entropy_for_logits(&labels) * scale).backward();
        sum += gradients(&vs);
    }
    let (vs, model) = on_devices(devices)?;
    model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
    Ok(Shards {
        sum: ratio(&sum, &expected)?,
        average: ratio(&(&sum / devices as f64), &expected)?,
        data_parallel: difference(&gradients(&vs), &whole)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn each_output_gets_its_rows_of_the_gathered_outputs_gradient() {
        let slices = slices(10, 4).unwrap();
        let rows: Vec<_> = slices.iter().map(|slice| slice.shape[0]).collect();
        assert_eq!(rows, [3, 3, 3, 1]);
        assert!(slices.iter().all(|slice| slice.difference == 0.0));
    }

    #[test]
    fn a_loss_on_each_device_gives_the_same_gradients_for_equal_chunks() {
        let figure = figure(8, 2).unwrap();
        assert_ne!(figure.losses[0], figure.losses[1]);
        assert_relative_eq!(figure.mean, figure.one, max_relative = ROUNDING);
        assert!(figure.difference <= ROUNDING, "{}", figure.difference);
    }

    #[test]
    fn what_the_loss_has_divided_already_is_summed_and_else_averaged() {
        for (reduction, sum, average) in [
            (Reduction::MeanOfBatch, 1.0, 0.25),
            (Reduction::MeanOfChunk, 4.0, 1.0),
            (Reduction::Sum, 1.0, 0.25),
        ] {
            let shards = shards(8, 4, reduction).unwrap();
            assert_relative_eq!(shards.sum, sum, max_relative = ROUNDING);
            assert_relative_eq!(shards.average, average, max_relative = ROUNDING);
            assert!(shards.data_parallel <= ROUNDING, "{}", shards.data_parallel);
        }
    }
}
