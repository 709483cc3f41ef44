//! One training step, with the loss in three places. The lines between the anchors are what a program has to change.

use super::toy::*;
use anyhow::Result;
use tch::{Tensor, nn::Module, nn::Path, nn::Sequential, nn::VarStore};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, DataParallelCriterion, DataParallelModel};

/// Outputs are gathered, and the loss is computed on one device. Returns the loss of the whole
/// batch and all gradients in one row, as the other two do.
pub fn after_gathering(devices: &Devices, rows: i64) -> Result<(f64, Tensor)> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: after_gathering
    let model = DataParallel::new(mlp, &vs, devices)?;
    set_weights(&vs);
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = logits.cross_entropy_for_logits(&labels);
    model.backward(&loss)?;
    // ANCHOR_END: after_gathering
    Ok((number(&loss), gradients(&vs)))
}

/// The model computes its loss, and one number per device is gathered.
pub fn in_the_model(devices: &Devices, rows: i64) -> Result<(f64, Tensor)> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: in_the_model
    let model = DataParallel::new(WithLoss::new, &vs, devices)?;
    set_weights(&vs);
    let losses = model.forward((inputs, labels), |model, (x, y)| model.forward(&x, &y))?;
    let loss = losses.mean(tch::Kind::Float);
    model.backward(&loss)?;
    // ANCHOR_END: in_the_model
    Ok((number(&loss), gradients(&vs)))
}

// ANCHOR: with_loss
/// [`mlp`] with its loss.
struct WithLoss(Sequential);

impl WithLoss {
    fn new(path: &Path<'_>) -> Self {
        WithLoss(mlp(path))
    }

    fn forward(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.0.forward(x).cross_entropy_for_logits(y)
    }
}
// ANCHOR_END: with_loss

/// Outputs and losses stay on their devices.
pub fn in_parallel(devices: &Devices, rows: i64) -> Result<(f64, Tensor)> {
    let vs = VarStore::new(devices.first().into());
    let (inputs, labels) = batch(rows);
    // ANCHOR: in_parallel
    let model = DataParallelModel::new(mlp, &vs, devices)?;
    let criterion = DataParallelCriterion::new(|logits: &Tensor, labels: &Tensor| {
        logits.cross_entropy_for_logits(labels)
    });
    set_weights(&vs);
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = criterion.forward(logits, labels)?;
    let value = number(loss.value());
    loss.backward()?;
    // ANCHOR_END: in_parallel
    Ok((value, gradients(&vs)))
}

/// For the loss after gathering, in the model and by a parallel criterion, its value and the
/// difference between its gradients and the first's (S0.19).
pub fn places(rows: i64, devices: usize) -> Result<Vec<(f64, f64)>> {
    let devices = Devices::cpu(devices)?;
    let (_, expected) = after_gathering(&devices, rows)?;
    let places = [after_gathering, in_the_model, in_parallel].into_iter().map(|place| {
        let (loss, gradients) = place(&devices, rows)?;
        Ok((loss, difference(&gradients, &expected)))
    });
    places.collect()
}

/// Lines between a placement's anchors that the placement after gathering lacks (S0.21).
pub fn other_lines(place: &str) -> usize {
    let source = include_str!("three_placements.rs");
    let lines = |place: &str| {
        let begin = format!("// ANCHOR: {place}");
        let end = format!("// ANCHOR_END: {place}");
        let after_begin = source.lines().map(str::trim).skip_while(move |line| *line != begin);
        after_begin.skip(1).take_while(move |line| *line != end).collect::<Vec<_>>()
    };
    let common = lines("after_gathering");
    lines(place).iter().filter(|line| !common.contains(line)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn three_places_of_the_loss_give_the_same_gradients() {
        let places = places(8, 4).unwrap();
        for (loss, difference) in &places {
            assert_relative_eq!(*loss, places[0].0, max_relative = ROUNDING);
            assert!(*difference <= ROUNDING, "{difference}");
        }
        assert_eq!(places.len(), 3);
    }

    #[test]
    fn the_lines_that_differ_are_counted() {
        assert_eq!(other_lines("after_gathering"), 0);
        assert_eq!(other_lines("in_the_model"), 3);
    }
}
