//! A copy of the model on every device.

use super::small::{
    copied, difference, equality, number, set_weights, traced, unwrapped, waves, wrapped,
};
use super::{Question, Theme};
use crate::models::EmbeddingLinear;
use anyhow::Result;
use report::thousands;
use tch::nn::{Module, VarStore};
use tch::{Kind, Reduction, Tensor, no_grad};
use tch_parallel::data_parallel::{
    DataParallel, DataParallelCriterion, DataParallelModel, DataParallelOptions, Step,
};
use tch_parallel::optim::{Optimizer, Sgd, SgdOptions};
use tch_parallel::{Devices, LogicalDevice};

pub const THEME: Theme = Theme {
    title: "A copy of the model on every device",
    questions: &[
        Question {
            rows: &["S0.1", "S0.3"],
            text: "What does the thread's model give when it runs, on 4 devices and on one?",
            numbers: || {
                let toy = toy(4)?;
                Ok(vec![
                    format!("{} parameters", thousands(toy.parameters)),
                    format!("output {:?} of tokens 1 to 6", toy.shape),
                    format!(
                        "compared with the output of the unwrapped model: {}",
                        equality(toy.difference)
                    ),
                ])
            },
            answer: "The same numbers: wrapping changes where they are computed.",
        },
        Question {
            rows: &["S0.9"],
            text: "Does every device have the whole model and a part of the batch?",
            numbers: || {
                let held = held(4)?;
                Ok(held
                    .iter()
                    .map(|part| format!("{}: weights {:.4}, rows {:?}", part.0, part.1, part.2))
                    .collect())
            },
            answer: "The sums of the weights are equal, the rows are not: the batch is divided, \
                     the layers are not.",
        },
        Question {
            rows: &["S2.10"],
            text: "Is the model passed to the first device again?",
            numbers: || {
                let copy = copies(1)?;
                Ok(vec![
                    format!("replica 0 has the original's storage: {}", copy.first_is_original),
                    format!("replica 1 has the original's storage: {}", copy.second_is_original),
                    format!("bytes copied to each device: {:?}", copy.bytes[0]),
                ])
            },
            answer: "No: the first replica is the original itself.",
        },
        Question {
            rows: &["S0.6", "S2.2"],
            text: "How do replicas get the latest weights?",
            numbers: || {
                let bytes = copies(3)?.bytes;
                Ok(vec![format!("bytes copied in 3 forward passes: {bytes:?}")])
            },
            answer: "All weights are copied in every forward pass; replicas never speak to each \
                     other.",
        },
        Question {
            rows: &["S2.8"],
            text: "Does each device update its model?",
            numbers: || {
                let update = update()?;
                Ok(vec![
                    format!("the optimizer moves the original by {:.4}", update.original),
                    format!("a replica by {:.4}", update.replica),
                    format!(
                        "after the next forward pass the replica is {}",
                        equality(update.after)
                    ),
                ])
            },
            answer: "Only the original is updated; its copies are replaced.",
        },
        Question {
            rows: &["S2.1"],
            text: "Must model and batch be on the first device?",
            numbers: || {
                Ok(vec![
                    format!("a model on cpu:1: {}", model_elsewhere()?),
                    format!("a batch on cpu:1: an output of {:?}", batch_elsewhere()?),
                ])
            },
            answer: "The model must be there, the batch may be anywhere.",
        },
    ],
};

struct Toy {
    parameters: usize,
    shape: Vec<i64>,
    /// From the output of the unwrapped model.
    difference: f64,
}

fn toy(devices: usize) -> Result<Toy> {
    let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6]);
    let (vs, model) = replicas(devices)?;
    let (_, alone) = unwrapped(EmbeddingLinear::new);
    let (output, expected) =
        no_grad(|| anyhow::Ok((model.f_forward_t(&tokens, true)?, alone.forward(&tokens))))?;
    Ok(Toy {
        parameters: vs.trainable_variables().iter().map(Tensor::numel).sum(),
        shape: output.size(),
        difference: difference(&output, &expected)?,
    })
}

fn replicas(devices: usize) -> Result<(VarStore, DataParallel<EmbeddingLinear>)> {
    wrapped(&Devices::cpu(devices)?, DataParallelOptions::default(), EmbeddingLinear::new)
}

/// The same model, whose outputs and whatever else a replica returns can be looked at one by one.
fn apart(devices: usize) -> Result<(VarStore, DataParallelModel<EmbeddingLinear>)> {
    let devices = Devices::cpu(devices)?;
    let vs = VarStore::new(devices.first().into());
    let model = DataParallelModel::new(&vs, &devices, EmbeddingLinear::new)?;
    set_weights(&vs);
    Ok((vs, model))
}

/// What each device holds: the sum of its weights, and which rows of the batch.
fn held(devices: usize) -> Result<Vec<(LogicalDevice, f64, Vec<i64>)>> {
    let (_vs, model) = apart(devices)?;
    let outputs = model
        .forward(Tensor::from_slice(&[0i64, 1, 2, 3, 4, 5, 6, 7]), |module, rows| {
            (module.embedding.ws.detach(), rows)
        })?;
    let parts = outputs.parts().iter();
    parts
        .map(|(weights, rows)| {
            let device = LogicalDevice::of(weights);
            Ok((device, number(&weights.sum(Kind::Double))?, Vec::<i64>::try_from(rows)?))
        })
        .collect()
}

struct Copies {
    first_is_original: bool,
    second_is_original: bool,
    /// For each forward pass, bytes to each device.
    bytes: Vec<Vec<usize>>,
}

fn copies(passes: usize) -> Result<Copies> {
    let (tokens, original) = (Tensor::from_slice(&[1i64, 2]), "embedding.weight");
    let (vs, model) = apart(2)?;
    let outputs =
        model.forward(tokens.shallow_clone(), |module, _| module.embedding.ws.shallow_clone())?;
    let is_original = |part: &Tensor| part.data_ptr() == vs.variables()[original].data_ptr();
    let [first, second] = [0, 1].map(|index| is_original(&outputs.parts()[index]));
    let (_vs, model) = replicas(2)?;
    let bytes = (0..passes).map(|_| {
        let events = traced(&model, |model, _| {
            let _ = model.f_forward_t(&tokens, true)?;
            Ok(())
        })?;
        Ok(copied(&events, Step::Replicate))
    });
    Ok(Copies {
        first_is_original: first,
        second_is_original: second,
        bytes: bytes.collect::<Result<_>>()?,
    })
}

struct Update {
    /// By how much a step of the optimizer moved it.
    original: f64,
    /// By how much a step of the optimizer moved it.
    replica: f64,
    /// Between original and replica after the next forward pass.
    after: f64,
}

fn update() -> Result<Update> {
    let (vs, model) = apart(2)?;
    let forward = || {
        model.forward(Tensor::from_slice(&[1i64, 2]), |module, tokens| {
            (module.forward(&tokens), module.embedding.ws.detach())
        })
    };
    let outputs = forward()?;
    let [original, replica] = [0, 1].map(|index| outputs.parts()[index].1.shallow_clone());
    let before = [&original, &replica].map(Tensor::copy);
    let criterion = DataParallelCriterion::new(|(output, _): &(Tensor, _), target: &Tensor| {
        output.mse_loss(target, Reduction::Mean)
    });
    criterion.forward(outputs, waves(&[2, EmbeddingLinear::WIDTH]))?.backward()?;
    Sgd::new(&vs, SgdOptions { lr: 1.0, ..Default::default() })?.step()?;
    let moved = |now: &Tensor, before: &Tensor| number(&(now - before).norm());
    let (original_moved, replica_moved) =
        (moved(&original, &before[0])?, moved(&replica, &before[1])?);
    let _ = forward()?;
    Ok(Update {
        original: original_moved,
        replica: replica_moved,
        after: difference(&replica, &original)?,
    })
}

/// What a model on another device than the first is refused with.
fn model_elsewhere() -> Result<String> {
    let devices = Devices::cpu(2)?;
    let second = devices.get(1)?;
    let vs = VarStore::new(second.into());
    let built = DataParallel::new(&vs, &devices, |path| {
        let _on = second.guard();
        EmbeddingLinear::new(path)
    });
    Ok(match built {
        Ok(_) => "taken".into(),
        Err(error) => error.to_string(),
    })
}

/// The shape of the output of a batch that is on the second device.
fn batch_elsewhere() -> Result<Vec<i64>> {
    let (_vs, model) = replicas(2)?;
    let tokens = LogicalDevice::Cpu(1).copy_of(&Tensor::from_slice(&[1i64, 2, 3, 4]))?;
    Ok(model.f_forward_t(&tokens, true)?.size())
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;

    /// What the embedding and the linear layer occupy.
    const BYTES: usize = (1000 * 10 + 10 * 10 + 10) * size_of::<f32>();

    #[test]
    fn the_toy_gives_the_unwrapped_models_output_on_any_devices() {
        for devices in 1..=4 {
            let toy = toy(devices).unwrap();
            assert_eq!((toy.parameters, toy.shape), (10_110, vec![6, 10]));
            assert!(toy.difference <= ROUNDING, "{devices} devices: {}", toy.difference);
        }
    }

    #[test]
    fn every_device_holds_the_same_weights_and_rows_of_its_own() {
        let held = held(4).unwrap();
        assert_eq!(held.len(), 4);
        for (index, (device, weights, rows)) in held.iter().enumerate() {
            assert_eq!(*device, LogicalDevice::Cpu(index));
            assert_eq!(*weights, held[0].1);
            assert_eq!(*rows, [2 * index as i64, 2 * index as i64 + 1]);
        }
    }

    #[test]
    fn the_first_replica_is_the_original_and_the_second_is_copied_in_every_pass() {
        let copies = copies(3).unwrap();
        assert_eq!((copies.first_is_original, copies.second_is_original), (true, false));
        assert_eq!(copies.bytes, vec![vec![0, BYTES]; 3]);
    }

    #[test]
    fn only_the_original_is_updated() {
        let update = update().unwrap();
        assert!(update.original > 0.0);
        assert_eq!((update.replica, update.after), (0.0, 0.0));
    }

    #[test]
    fn the_model_must_be_on_the_first_device_and_the_batch_need_not_be() {
        let error = model_elsewhere().unwrap();
        assert!(error.contains("on cpu:1, but must be on cpu:0"), "{error}");
        assert_eq!(batch_elsewhere().unwrap(), [4, 10]);
    }
}
