//! Where the loss is computed, what that costs and what it saves.

use super::small::{copied_by, difference, equality, set_weights, traced, waves, wrapped};
use super::three_placements::{after_gathering, in_parallel, in_the_model};
use super::{Question, Theme, lines};
use crate::models::TwoTargets;
use anyhow::Result;
use report::{Column, thousands};
use std::time::{Duration, Instant};
use tch::nn::{Linear, Module, VarStore};
use tch::{Device, Kind, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{
    DataParallelCriterion, DataParallelModel, DataParallelOptions, Step, Trace,
};
use tch_parallel::nn::{LinearOptions, linear};

/// Words of BERT's vocabulary: as many numbers an output has for every token.
const VOCABULARY: i64 = 30_522;

pub const THEME: Theme = Theme {
    title: "Where the loss is computed",
    questions: &[
        Question {
            rows: &["S0.19"],
            text: "Why gather all outputs, and not compute the loss on each device?",
            numbers: || {
                let devices = Devices::cpu(4)?;
                let gathered = after_gathering(&devices, 8)?;
                let places = [
                    ("after gathering", after_gathering(&devices, 8)?),
                    ("in the model", in_the_model(&devices, 8)?),
                    ("by a parallel criterion", in_parallel(&devices, 8)?),
                ];
                let rows = places.map(|(place, outcome)| {
                    let difference = difference(&outcome.gradients, &gathered.gradients)?;
                    Ok(vec![place.into(), format!("{:.4}", outcome.loss), equality(difference)])
                });
                lines(
                    &[Column::Left("computed"), Column::Right("loss"), Column::Left("gradients")],
                    rows,
                )
            },
            answer: "One can: with equal chunks all three places give the same gradients.",
        },
        Question {
            rows: &["S0.21"],
            text: "How much has to be rewritten for that?",
            numbers: || {
                Ok(vec![
                    format!("loss in the model: {} other lines", other_lines("in_the_model")),
                    format!("parallel criterion: {} other lines", other_lines("in_parallel")),
                ])
            },
            answer: "A few lines of the program, and for a loss in the model the model itself \
                     (which is not in the count).",
        },
        Question {
            rows: &["S0.22"],
            text: "Is computing the loss cheap?",
            numbers: || {
                [10, VOCABULARY]
                    .map(|classes| {
                        let LossTime { loss, step } = loss_time(128, classes);
                        let [loss, step] = [loss, step].map(|time| 1e3 * time.as_secs_f64());
                        let classes = thousands(classes as usize);
                        Ok(format!(
                            "measured: {classes} outputs: {loss:.2} ms of {step:.2} ms, {:.0} %",
                            100.0 * loss / step
                        ))
                    })
                    .into_iter()
                    .collect()
            },
            answer: "It is a small share of a step, even with an output for every word of a \
                     vocabulary: the layer that makes these outputs has grown as well. What is not \
                     small is their space.",
        },
        Question {
            rows: &["S0.23"],
            text: "What is transported in each case?",
            numbers: || {
                let rows = [10, VOCABULARY].map(|classes| {
                    let bytes = transported(64, classes, 4)?;
                    let all =
                        [classes as usize, bytes.gather, bytes.scatter_gradients, bytes.targets];
                    Ok(all.map(thousands).to_vec())
                });
                lines(&TRANSPORTED, rows)
            },
            answer: "Of 64 rows on 4 devices, 48 x outputs x 4 bytes, twice: all chunks but that \
                     of the first device. A parallel criterion needs the targets, and gives back a \
                     number.",
        },
        Question {
            rows: &["S2.22"],
            text: "And with the question's own model?",
            numbers: || {
                let bytes = one_number_a_row(64, 4)?;
                let bert = 64 * 20 * VOCABULARY as usize * size_of::<f32>();
                Ok(vec![
                    format!("64 rows with one number each: gathering copies {bytes} bytes"),
                    format!(
                        "64 rows of 20 tokens in BERT would be {} bytes in all",
                        thousands(bert)
                    ),
                ])
            },
            answer: "Its outputs are so small that their place does not matter.",
        },
    ],
};

const TRANSPORTED: [Column; 4] = [
    Column::Right("outputs"),
    Column::Right("gathering"),
    Column::Right("its way back"),
    Column::Right("targets of a parallel criterion"),
];

/// Lines between a placement's anchors that the placement after gathering does not have.
fn other_lines(place: &str) -> usize {
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

const HIDDEN: i64 = 256;

fn layer(classes: i64) -> impl Fn(&tch::nn::Path<'_>) -> Linear {
    move |path| linear(path / "output", HIDDEN, classes, LinearOptions::default())
}

fn targets(rows: i64) -> Tensor {
    Tensor::arange(rows, (Kind::Int64, Device::Cpu)).remainder(10)
}

struct LossTime {
    /// Of the loss and its gradient.
    loss: Duration,
    /// Of the whole step, forwards and backwards.
    step: Duration,
}

/// How long the loss takes behind a model of three layers on one device: of six steps the fastest,
/// which was disturbed the least.
fn loss_time(rows: i64, classes: i64) -> LossTime {
    let vs = VarStore::new(Device::Cpu);
    let hidden =
        ["0", "1"].map(|name| linear(vs.root() / name, HIDDEN, HIDDEN, LinearOptions::default()));
    let output = layer(classes)(&vs.root());
    let (inputs, targets) = (waves(&[rows, HIDDEN]), targets(rows));
    let step = || {
        let begun = Instant::now();
        let x = hidden[0].forward(&inputs).relu();
        let logits = output.forward(&hidden[1].forward(&x).relu());
        let loss_begun = Instant::now();
        let leaf = logits.detach().set_requires_grad(true);
        leaf.cross_entropy_for_logits(&targets).backward();
        let loss = loss_begun.elapsed();
        // The gradient of the sum of products is the gradient that was given.
        (logits * leaf.grad()).sum(Kind::Float).backward();
        LossTime { loss, step: begun.elapsed() }
    };
    let first = step();
    (0..5).map(|_| step()).fold(first, |best, time| if time.step < best.step { time } else { best })
}

struct Transported {
    /// Outputs, to the first device.
    gather: usize,
    /// Gradients of the outputs, from the first device.
    scatter_gradients: usize,
    /// What is scattered beyond the inputs if the loss is computed on every device.
    targets: usize,
}

fn transported(rows: i64, classes: i64, devices: usize) -> Result<Transported> {
    let devices = Devices::cpu(devices)?;
    let (inputs, targets) = (waves(&[rows, HIDDEN]), targets(rows));
    let (_vs, model) = wrapped(&devices, DataParallelOptions::default(), layer(classes))?;
    let gathered = traced(&model, |model, _| {
        let logits = model.f_forward_t(&inputs, true)?;
        Ok(model.backward(&logits.cross_entropy_for_logits(&targets))?)
    })?;

    let vs = VarStore::new(devices.first().into());
    let model = DataParallelModel::new(&vs, &devices, layer(classes))?;
    set_weights(&vs);
    let trace = Trace::new();
    model.set_trace(&trace);
    let criterion = DataParallelCriterion::new(|logits: &Tensor, targets: &Tensor| {
        logits.cross_entropy_for_logits(targets)
    });
    criterion.forward(model.f_forward_t(&inputs, true)?, targets)?.backward()?;
    let in_parallel = trace.events();
    Ok(Transported {
        gather: copied_by(&gathered, Step::Gather),
        scatter_gradients: copied_by(&gathered, Step::ScatterGradients),
        targets: copied_by(&in_parallel, Step::Scatter) - copied_by(&gathered, Step::Scatter),
    })
}

/// Bytes that gathering copies if there is one number a row.
fn one_number_a_row(rows: i64, devices: usize) -> Result<usize> {
    let build = |path: &tch::nn::Path<'_>| TwoTargets::new(path, HIDDEN, 8);
    let (_vs, model) = wrapped(&Devices::cpu(devices)?, DataParallelOptions::default(), build)?;
    let inputs = (waves(&[rows, HIDDEN]), waves(&[rows]), waves(&[rows]));
    let events = traced(&model, |model, _| {
        let _ = model.forward(inputs, |replica, (x, y, y2)| replica.forward(&x, &y, &y2).0)?;
        Ok(())
    })?;
    Ok(copied_by(&events, Step::Gather))
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;
    use approx::assert_relative_eq;

    #[test]
    fn three_places_of_the_loss_give_the_same_gradients() {
        let devices = Devices::cpu(4).unwrap();
        let gathered = after_gathering(&devices, 8).unwrap();
        for other in [in_the_model(&devices, 8).unwrap(), in_parallel(&devices, 8).unwrap()] {
            assert_relative_eq!(other.loss, gathered.loss, max_relative = ROUNDING);
            let difference = difference(&other.gradients, &gathered.gradients).unwrap();
            assert!(difference <= ROUNDING, "{difference}");
        }
    }

    #[test]
    fn the_lines_that_differ_are_counted() {
        assert_eq!(other_lines("after_gathering"), 0);
        assert_eq!(other_lines("in_the_model"), 3);
    }

    #[test]
    fn the_loss_is_a_part_of_the_step() {
        let LossTime { loss, step } = loss_time(8, 10);
        assert!(loss > Duration::ZERO && loss < step, "{loss:?} of {step:?}");
    }

    #[test]
    fn gathering_copies_every_chunk_but_the_first_both_ways() {
        let bytes = transported(64, 1000, 4).unwrap();
        assert_eq!(bytes.gather, 48 * 1000 * 4);
        assert_eq!(bytes.scatter_gradients, bytes.gather);
        // A class of eight bytes for each row.
        assert_eq!(bytes.targets, 48 * 8);
        assert_eq!(one_number_a_row(64, 4).unwrap(), 48 * 4);
    }
}
