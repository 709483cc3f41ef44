//! The backward pass: which gradient goes where, and why gradients are summed.

use super::three_placements::{after_gathering, in_parallel};
use super::toy::*;
use crate::models::EmbeddingLinear;
use anyhow::{Result, bail};
use std::{collections::BTreeMap, sync::Mutex, sync::PoisonError};
use tch::{Kind, Reduction, Tensor, nn::Module, nn::VarStore};
use tch_parallel::{Devices, LogicalDevice, data_parallel::scatter};

/// How far DataParallel's gradients are from the unwrapped model's, with the outputs on this device (S0.31, S2.12).
pub fn data_parallel(rows: i64, devices: usize, output: usize) -> Result<f64> {
    Ok(difference(&step(rows, devices, output)?.gradients, &reference(rows)))
}

/// For each replica its device, the shape of its output, and the difference between the gradient of
/// this output and its rows of dLoss/dOutput (S0.11, S2.6, S2.7).
pub fn slices(rows: i64, devices: usize) -> Result<Vec<(String, Vec<i64>, f64)>> {
    let (inputs, labels) = batch(rows);
    let (_vs, model) = wrapped(devices, mlp)?;
    // A leaf of zeros that is added to an output receives the output's gradient.
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
    let probes = probes.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sizes: Vec<_> = probes.values().map(|probe| probe.size()[0]).collect();
    let expected = gathered.grad().split_with_sizes(sizes, 0);
    let slices = probes.into_iter().zip(expected).map(|((device, probe), expected)| {
        (device.to_string(), probe.size(), difference(&probe.grad(), &expected))
    });
    Ok(slices.collect())
}

/// The loss of each device's own rows, their mean by a parallel criterion, the one loss of the
/// gathered outputs, and the difference between the gradients of the last two (S2.11).
pub fn figure(rows: i64, devices: usize) -> Result<(Vec<f64>, f64, f64, f64)> {
    let (_vs, model) = split(devices, mlp)?;
    let losses =
        model.forward(batch(rows), |mlp, (x, y)| mlp.forward(&x).cross_entropy_for_logits(&y))?;
    let losses = losses.parts().iter().map(number).collect();
    let devices = Devices::cpu(devices)?;
    let (mean, gradients) = in_parallel(&devices, rows)?;
    let (one, expected) = after_gathering(&devices, rows)?;
    Ok((losses, mean, one, difference(&gradients, &expected)))
}

/// The sum and the average of the gradients of a batch's chunks, as shares of the gradient of the whole batch (S2.12,
/// S2.13). The loss of a chunk is summed over its rows and divided by the rows of the whole batch, as in DataParallel,
/// by its own rows, as on a rank of DistributedDataParallel, or by nothing.
pub fn shards(rows: i64, devices: usize, divided_by: &str) -> Result<(f64, f64)> {
    let whole = reference(rows);
    let mut sum = whole.zeros_like();
    for (inputs, labels) in scatter(&batch(rows), &Devices::cpu(devices)?, 0)? {
        let (vs, model) = unwrapped(mlp);
        let own = labels.size()[0];
        let scale = match divided_by {
            "rows of the batch" => own as f64 / rows as f64,
            "its own rows" => 1.0,
            "nothing" => own as f64,
            _ => bail!("a loss cannot be divided by {divided_by}"),
        };
        (model.forward(&inputs).cross_entropy_for_logits(&labels) * scale).backward();
        sum += gradients(&vs);
    }
    let expected = if divided_by == "nothing" { whole * rows as f64 } else { whole };
    Ok((ratio(&sum, &expected), ratio(&(&sum / devices as f64), &expected)))
}

/// The embedding of a token that is in both chunks (S0.5): the norms of its gradient and of each chunk's contribution,
/// the difference between the contributions' sum and the gradient, and how many rows of the table have a gradient.
pub fn shared_token() -> Result<(f64, [f64; 2], f64, i64)> {
    let tokens = Tensor::from_slice(&[7i64, 1, 7, 2]);
    let targets = waves(&[4, EmbeddingLinear::WIDTH]);
    let table = |vs: &VarStore| vs.variables()["embedding.weight"].grad();

    let (vs, model) = wrapped(2, EmbeddingLinear::new)?;
    let loss = || Ok(model.f_forward_t(&tokens, true)?.mse_loss(&targets, Reduction::Mean));
    train(&vs, &model, loss)?;
    let found = table(&vs).get(7);
    let touched = table(&vs).abs().sum_dim_intlist(1, false, Kind::Float).count_nonzero(0);

    let parts = [0, 2].map(|start| {
        let (vs, alone) = unwrapped(EmbeddingLinear::new);
        let output = alone.forward(&tokens.narrow(0, start, 2));
        // The share of these two rows in the mean over all four.
        (output.mse_loss(&targets.narrow(0, start, 2), Reduction::Mean) * 0.5).backward();
        table(&vs).get(7)
    });
    let apart = difference(&found, &(&parts[0] + &parts[1]));
    let norm = |gradient: &Tensor| number(&gradient.norm());
    Ok((norm(&found), parts.each_ref().map(norm), apart, touched.int64_value(&[])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn each_output_gets_its_rows_of_the_gathered_outputs_gradient() {
        let slices = slices(10, 4).unwrap();
        let rows: Vec<_> = slices.iter().map(|(_, shape, _)| shape[0]).collect();
        assert_eq!(rows, [3, 3, 3, 1]);
        assert!(slices.iter().all(|(.., difference)| *difference == 0.0));
    }

    #[test]
    fn a_loss_on_each_device_gives_the_same_gradients_for_equal_chunks() {
        let (losses, mean, one, difference) = figure(8, 2).unwrap();
        assert_ne!(losses[0], losses[1]);
        assert_relative_eq!(mean, (losses[0] + losses[1]) / 2.0, max_relative = ROUNDING);
        assert_relative_eq!(mean, one, max_relative = ROUNDING);
        assert!(difference <= ROUNDING, "{difference}");
    }

    #[test]
    fn what_the_loss_has_divided_already_is_summed_and_else_averaged() {
        for (divided_by, sum, average) in
            [("rows of the batch", 1.0, 0.25), ("its own rows", 4.0, 1.0), ("nothing", 1.0, 0.25)]
        {
            let found = shards(8, 4, divided_by).unwrap();
            assert_relative_eq!(found.0, sum, max_relative = ROUNDING);
            assert_relative_eq!(found.1, average, max_relative = ROUNDING);
        }
        let difference = data_parallel(8, 4, 0).unwrap();
        assert!(difference <= ROUNDING, "{difference}");
    }

    #[test]
    fn a_row_that_two_chunks_use_gets_both_gradients() {
        let (_, parts, difference, touched) = shared_token().unwrap();
        assert!(difference <= ROUNDING, "{difference}");
        assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
        assert_eq!(touched, 3);
    }
}
