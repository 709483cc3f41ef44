//! What a model has to know about being wrapped.

use super::small::{batch, difference, mlp, number, on_devices, waves, wrapped};
use super::{Question, Theme};
use anyhow::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use tch::nn::{self, Module, Path};
use tch::{Kind, Tensor, no_grad};
use tch_parallel::data_parallel::DataParallelOptions;
use tch_parallel::{Devices, Shared};

pub const THEME: Theme = Theme {
    title: "Limits",
    questions: &[
        Question {
            rows: &["S0.13"],
            text: "Are there devices that do nothing?",
            numbers: || {
                [(2, 4), (5, 4), (9, 8)]
                    .into_iter()
                    .map(|(rows, devices)| {
                        let idle = devices - super::chunks::chunk_sizes(rows, devices)?.len();
                        Ok(format!("{rows} rows on {devices} devices: {idle} idle"))
                    })
                    .collect()
            },
            answer: "With few rows there are, and not only when there are fewer rows than devices.",
        },
        Question {
            rows: &["S0.13"],
            text: "What becomes of a state that the forward pass writes?",
            numbers: || {
                let mean = running_mean(8, 2)?;
                Ok(vec![format!(
                    "running mean of 0 to 7 on 2 devices {:.4}, of 0 to 3 on one {:.4}, of 0 to 7 \
                     on one {:.4}",
                    mean.wrapped, mean.first_chunk, mean.whole
                )])
            },
            answer: "Only the original's survives: it has seen the first chunk.",
        },
        Question {
            rows: &["S0.13"],
            text: "What does batch normalisation normalise over?",
            numbers: || {
                let difference = normalised(8, 2)?;
                Ok(vec![format!(
                    "outputs on 2 devices differ by {:.1} % from those on one",
                    100.0 * difference
                )])
            },
            answer: "Over the rows of one device: each replica has its own mean.",
        },
        Question {
            rows: &["S0.13"],
            text: "What does a single number become?",
            numbers: || Ok(vec![format!("a number from each of 3 replicas: {:?}", scalar(6, 3)?)]),
            answer: "A vector with a number from each replica.",
        },
        Question {
            rows: &["S0.13"],
            text: "May a hidden state have the batch in dimension 1?",
            numbers: || {
                Ok(vec![
                    format!("x [4, 3] with h [2, 4, 3]: {}", batch_in_dimension_1(false)?),
                    format!("with h transposed: {}", batch_in_dimension_1(true)?),
                ])
            },
            answer: "Not beside a batch in dimension 0: transpose it on its way in and out. \
                     PyTorch would cut the layers apart without a word.",
        },
        Question {
            rows: &["S0.13"],
            text: "What becomes of an argument that is no tensor?",
            numbers: || {
                let outputs = shared(3)?;
                Ok(vec![format!("1, 2 and 3, each on a device, times Shared(5): {outputs:?}")])
            },
            answer: "Every replica gets the same one.",
        },
        Question {
            rows: &["S0.13"],
            text: "How often does a hook, or anything else in the forward pass, run?",
            numbers: || Ok(vec![format!("on 4 devices: {} times", calls(8, 4)?)]),
            answer: "Once for each replica that has work.",
        },
    ],
};

/// A column of numbers 0, 1, 2 …
fn column(rows: i64) -> Tensor {
    Tensor::arange(rows, tch::kind::FLOAT_CPU).view([rows, 1])
}

fn normalisation(path: &Path<'_>) -> nn::BatchNorm {
    nn::batch_norm1d(path / "bn", 1, Default::default())
}

struct RunningMean {
    /// After a pass over all rows on several devices.
    wrapped: f64,
    /// After a pass over the first device's rows on one.
    first_chunk: f64,
    /// After a pass over all rows on one.
    whole: f64,
}

fn running_mean(rows: i64, devices: usize) -> Result<RunningMean> {
    let mean = |rows, devices| {
        let options = DataParallelOptions::default();
        let (vs, model) = wrapped(&Devices::cpu(devices)?, options, normalisation)?;
        let _ = no_grad(|| model.f_forward_t(&column(rows), true))?;
        number(&vs.variables()["bn.running_mean"])
    };
    Ok(RunningMean {
        wrapped: mean(rows, devices)?,
        first_chunk: mean(rows / devices as i64, 1)?,
        whole: mean(rows, 1)?,
    })
}

/// The difference between what batch normalisation gives on several devices and on one.
fn normalised(rows: i64, devices: usize) -> Result<f64> {
    let output = |devices| {
        let options = DataParallelOptions::default();
        let (_vs, model) = wrapped(&Devices::cpu(devices)?, options, normalisation)?;
        anyhow::Ok(no_grad(|| model.f_forward_t(&column(rows), true))?)
    };
    difference(&output(devices)?, &output(1)?)
}

/// What a model's single number is gathered into.
fn scalar(rows: i64, devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = on_devices(devices)?;
    let counts = model.forward(batch(rows).0, |_, x| Tensor::from(x.size()[0]))?;
    Ok(counts.try_into()?)
}

/// What comes of a batch of 4 with a hidden state `[layers, 4, 3]`, or `[4, layers, 3]`.
fn batch_in_dimension_1(transposed: bool) -> Result<String> {
    let (x, h) = (waves(&[4, 3]), waves(&[2, 4, 3]));
    let h = if transposed { h.transpose(0, 1) } else { h };
    let (_vs, model) = on_devices(2)?;
    let states = model.forward((x, h), |_, (x, h)| {
        // The module would have the layers first.
        let h = if transposed { h.transpose(0, 1) } else { h };
        (h + x).transpose(0, 1)
    });
    Ok(match states {
        Ok(states) => format!("a state of {:?}", states.size()),
        Err(error) => error.to_string(),
    })
}

/// Numbers from 1, one on each device, times a number that all of them get.
fn shared(devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = on_devices(devices)?;
    let numbers = Tensor::arange_start(1, 1 + devices as i64, (Kind::Int64, tch::Device::Cpu));
    let outputs = model.forward((numbers, Shared(5)), |_, (x, Shared(factor))| x * factor)?;
    Ok(outputs.try_into()?)
}

/// How often a forward pass runs the module.
fn calls(rows: i64, devices: usize) -> Result<usize> {
    let (calls, options) = (AtomicUsize::new(0), DataParallelOptions::default());
    let (_vs, model) = wrapped(&Devices::cpu(devices)?, options, mlp)?;
    let _ = model.forward(batch(rows).0, |module, x| {
        calls.fetch_add(1, Ordering::Relaxed);
        module.forward(&x)
    })?;
    Ok(calls.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_mean_is_that_of_the_first_chunk() {
        let mean = running_mean(8, 2).unwrap();
        assert_eq!(mean.wrapped, mean.first_chunk);
        assert_ne!(mean.wrapped, mean.whole);
    }

    #[test]
    fn each_replica_normalises_over_its_own_rows() {
        assert!(normalised(8, 2).unwrap() > 0.1);
    }

    #[test]
    fn single_numbers_make_a_vector() {
        assert_eq!(scalar(7, 3).unwrap(), [3, 3, 1]);
    }

    #[test]
    fn a_state_with_the_batch_in_dimension_1_is_refused_until_it_is_transposed() {
        let error = batch_in_dimension_1(false).unwrap();
        assert!(error.contains("batches of [4, 2] rows"), "{error}");
        assert_eq!(batch_in_dimension_1(true).unwrap(), "a state of [4, 2, 3]");
    }

    #[test]
    fn what_is_no_tensor_is_the_same_for_all() {
        assert_eq!(shared(3).unwrap(), [5, 10, 15]);
    }

    #[test]
    fn the_module_runs_once_a_replica_with_work() {
        assert_eq!((calls(8, 4).unwrap(), calls(5, 4).unwrap()), (4, 3));
    }
}
