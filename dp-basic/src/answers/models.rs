//! Which models and which programs can be wrapped.

use super::small::{
    FEATURES, batch, difference, equality, gradients, mlp, on_devices, reference, unwrapped, waves,
    wrapped,
};
use super::{Question, Theme};
use anyhow::Result;
use tch::nn::{self, Module, Path, RNN};
use tch::{Kind, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::DataParallelOptions;

pub const THEME: Theme = Theme {
    title: "Which models and programs",
    questions: &[
        Question {
            rows: &["S0.12"],
            text: "Can every network that fits one device be put on several?",
            numbers: || {
                let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6, 7, 8]);
                Ok(vec![
                    format!(
                        "gradients on 4 devices, linear layers: {}",
                        equality(apart(mlp, &batch(8).0)?)
                    ),
                    format!("embedding: {}", equality(apart(embedding, &tokens)?)),
                    format!(
                        "convolution: {}",
                        equality(apart(convolution, &waves(&[8, 1, 6, 6]))?)
                    ),
                    format!("LSTM: {}", equality(apart(Lstm::new, &waves(&[8, 5, FEATURES]))?)),
                ])
            },
            answer: "Every network that treats the rows of a batch one by one; for the others see \
                     the limits below.",
        },
        Question {
            rows: &["S0.25"],
            text: "Does one program serve both one device and several?",
            numbers: || {
                let one = one_device()?;
                Ok(vec![format!(
                    "on 1 device the gradients are the unwrapped model's to the last bit: {one}"
                )])
            },
            answer: "Yes: there is no need to wrap only where there is more than one device.",
        },
        Question {
            rows: &["S0.26"],
            text: "May a model return a tuple, and gradients be cleared after the forward pass?",
            numbers: || {
                let tuple = tuple(8, 4)?;
                Ok(vec![
                    format!("logits {:?}, probas {:?}", tuple.logits, tuple.probas),
                    format!("gradients of the unwrapped model: {}", equality(tuple.difference)),
                ])
            },
            answer: "Yes: tuples are gathered element by element, and what counts is that \
                     gradients are cleared before the backward pass.",
        },
    ],
};

/// The difference between the gradients of a model on four devices and on one.
fn apart<M: Module>(build: impl Fn(&Path<'_>) -> M, inputs: &Tensor) -> Result<f64> {
    let (alone_vs, alone) = unwrapped(&build);
    alone.forward(inputs).square().mean(Kind::Float).backward();
    let (vs, model) = wrapped(&Devices::cpu(4)?, DataParallelOptions::default(), build)?;
    model.backward(&model.f_forward_t(inputs, true)?.square().mean(Kind::Float))?;
    difference(&gradients(&vs), &gradients(&alone_vs))
}

fn embedding(path: &Path<'_>) -> nn::Embedding {
    nn::embedding(path / "embedding", 10, 4, Default::default())
}

/// Images `[batch, 1, 6, 6]` to two numbers each.
fn convolution(path: &Path<'_>) -> nn::Sequential {
    nn::seq()
        .add(nn::conv2d(path / "0", 1, 2, 3, Default::default()))
        .add_fn(|x| x.relu().flat_view())
        .add(nn::linear(path / "2", 2 * 4 * 4, 2, Default::default()))
}

/// Sequences `[batch, length, 6]` to the last state, `[batch, 4]`.
#[derive(Debug)]
struct Lstm(nn::LSTM);

impl Lstm {
    fn new(path: &Path<'_>) -> Self {
        Lstm(nn::lstm(path / "lstm", FEATURES, 4, Default::default()))
    }
}

impl Module for Lstm {
    fn forward(&self, xs: &Tensor) -> Tensor {
        self.0.seq(xs).0.select(1, -1)
    }
}

/// Whether a wrapped model on one device has the very gradients of an unwrapped one.
fn one_device() -> Result<bool> {
    let (vs, model) = on_devices(1)?;
    let (inputs, labels) = batch(10);
    model.backward(&model.f_forward_t(&inputs, true)?.cross_entropy_for_logits(&labels))?;
    Ok(gradients(&vs) == reference(10)?.1)
}

struct Tuple {
    /// The shape of what was gathered first.
    logits: Vec<i64>,
    /// The shape of what was gathered second.
    probas: Vec<i64>,
    /// From the gradients of the unwrapped model.
    difference: f64,
}

fn tuple(rows: i64, devices: usize) -> Result<Tuple> {
    let (inputs, labels) = batch(rows);
    let (vs, model) = on_devices(devices)?;
    let step = || {
        let (logits, probas) = model.forward(inputs.shallow_clone(), |module, x| {
            let logits = module.forward(&x);
            let probas = logits.softmax(-1, Kind::Float);
            (logits, probas)
        })?;
        let cost = logits.cross_entropy_for_logits(&labels);
        vs.trainable_variables().iter_mut().for_each(Tensor::zero_grad);
        model.backward(&cost)?;
        anyhow::Ok((logits.size(), probas.size()))
    };
    // Were they not cleared, the second step's would be added to the first's.
    step()?;
    let (logits, probas) = step()?;
    Ok(Tuple { logits, probas, difference: difference(&gradients(&vs), &reference(rows)?.1)? })
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;

    #[test]
    fn networks_of_all_kinds_have_the_gradients_of_one_device() {
        let tokens = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6, 7, 8]);
        for difference in [
            apart(mlp, &batch(8).0),
            apart(embedding, &tokens),
            apart(convolution, &waves(&[8, 1, 6, 6])),
            apart(Lstm::new, &waves(&[8, 5, FEATURES])),
        ] {
            let difference = difference.unwrap();
            assert!(difference <= ROUNDING, "{difference}");
        }
    }

    #[test]
    fn on_one_device_wrapping_changes_nothing() {
        assert!(one_device().unwrap());
    }

    #[test]
    fn a_tuple_is_gathered_element_by_element() {
        let tuple = tuple(8, 4).unwrap();
        assert_eq!((tuple.logits, tuple.probas), (vec![8, 3], vec![8, 3]));
        assert!(tuple.difference <= ROUNDING, "{}", tuple.difference);
    }
}
