//! A whole step: its parts, and what it copies.

use super::small::{batch, copied_by, on_devices, traced, waves, wrapped};
use super::{Question, Theme};
use crate::models::{EmbeddingLinear, TwoTargets};
use anyhow::Result;
use report::thousands;
use tch::nn::VarStore;
use tch::{Kind, Tensor, no_grad};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions, Step};

pub const THEME: Theme = Theme {
    title: "A whole step",
    questions: &[
        Question {
            rows: &["S0.4", "S0.10", "S0.32", "S2.3", "S2.4", "S2.5"],
            text: "How is it implemented?",
            numbers: || parts(8, 4),
            answer: "By these parts, in this order, the parallel ones on a thread for each device; \
                     dp-basic trace shows their shapes, bytes and times.",
        },
        Question {
            rows: &["S2.20"],
            text: "What does the question's model cost in every forward pass?",
            numbers: || {
                let cost = question_model(2)?;
                Ok(vec![
                    format!("{} parameters", thousands(cost.parameters)),
                    format!("{} bytes to the second device", thousands(cost.replicate)),
                ])
            },
            answer: "All its weights for every further device, however small the batch is.",
        },
        Question {
            rows: &["S0.7", "S2.23"],
            text: "And how does DistributedDataParallel differ?",
            numbers: || {
                let [weights, gradients] = through_the_first(4)?;
                let bytes = weights / 3;
                Ok(vec![
                    format!("the first thread's model, {} bytes, on 4 devices", thousands(bytes)),
                    format!(
                        "DataParallel: {} bytes of weights from the first device and {} of \
                         gradients to it, in every step",
                        thousands(weights),
                        thousands(gradients)
                    ),
                    format!(
                        "DistributedDataParallel: weights once, at the beginning; in every step {} \
                         bytes of gradients from each rank and to it, in a ring (reckoned: 2 x 3/4 \
                         of the model)",
                        thousands(bytes * 2 * 3 / 4)
                    ),
                ])
            },
            answer: "Every rank keeps its own weights and optimizer, all make the same step, and \
                     no rank is the bottleneck: therefore DataParallel is no longer recommended \
                     where ranks are possible.",
        },
    ],
};

/// The parts of a training step in their order, each with its devices.
fn parts(rows: i64, devices: usize) -> Result<Vec<String>> {
    let (inputs, labels) = batch(rows);
    let (_vs, model) = on_devices(devices)?;
    let events = traced(&model, |model, trace| {
        let logits = model.f_forward_t(&inputs, true)?;
        let loss = trace
            .span(Step::Loss, model.output_device(), || logits.cross_entropy_for_logits(&labels));
        Ok(model.backward(&loss)?)
    })?;
    let mut parts = Vec::new();
    for step in Step::ALL {
        let mut on: Vec<_> = events
            .iter()
            .filter(|event| event.step == step)
            .map(|event| event.device.to_string())
            .collect();
        // Forwards and backwards, say, or a sum for each replica.
        on.dedup();
        if !on.is_empty() {
            parts.push(format!("{step}: {}", on.join(" ")));
        }
    }
    Ok(parts)
}

struct Cost {
    /// Of the model.
    parameters: usize,
    /// Bytes of weights that a forward pass copies.
    replicate: usize,
}

fn question_model(devices: usize) -> Result<Cost> {
    let devices = Devices::cpu(devices)?;
    let vs = VarStore::new(devices.first().into());
    let (features, hidden) = (TwoTargets::FEATURES, TwoTargets::HIDDEN);
    let model = DataParallel::new(&vs, &devices, |path| TwoTargets::new(path, features, hidden))?;
    let inputs = (waves(&[2, features]), waves(&[2]), waves(&[2]));
    let events = traced(&model, |model, _| {
        let _ =
            no_grad(|| model.forward(inputs, |replica, (x, y, y2)| replica.forward(&x, &y, &y2)))?;
        Ok(())
    })?;
    Ok(Cost {
        parameters: vs.trainable_variables().iter().map(Tensor::numel).sum(),
        replicate: copied_by(&events, Step::Replicate),
    })
}

/// Bytes of weights that leave the first device in a step, and of gradients that come to it.
fn through_the_first(devices: usize) -> Result<[usize; 2]> {
    let (tokens, options) = (Tensor::from_slice(&[1i64, 2, 3, 4]), DataParallelOptions::default());
    let (_vs, model) = wrapped(&Devices::cpu(devices)?, options, EmbeddingLinear::new)?;
    let events = traced(&model, |model, _| {
        let outputs = model.f_forward_t(&tokens, true)?;
        Ok(model.backward(&outputs.mean(Kind::Float))?)
    })?;
    Ok([Step::Replicate, Step::ReduceGradients].map(|step| copied_by(&events, step)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_these_parts_in_this_order() {
        let parts = parts(8, 2).unwrap();
        assert_eq!(
            parts,
            [
                "scatter: cpu:0 cpu:1",
                "replicate: cpu:0 cpu:1",
                "parallel_apply: cpu:0 cpu:1",
                "gather: cpu:0",
                "loss: cpu:0",
                "scatter gradients: cpu:0 cpu:1",
                "backward: cpu:0 cpu:1",
                "reduce gradients: cpu:0"
            ]
        );
    }

    #[test]
    fn the_questions_model_has_59_136_001_parameters_of_four_bytes() {
        let cost = question_model(2).unwrap();
        assert_eq!((cost.parameters, cost.replicate), (59_136_001, 4 * 59_136_001));
    }

    #[test]
    fn weights_go_out_and_gradients_come_in_once_for_every_further_device() {
        let bytes = 10_110 * size_of::<f32>();
        assert_eq!(through_the_first(4).unwrap(), [3 * bytes, 3 * bytes]);
    }
}
