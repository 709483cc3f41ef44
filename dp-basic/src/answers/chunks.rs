//! Dividing a batch.

use super::small::{batch, copied, mlp, traced, wrapped};
use super::{Question, Theme};
use anyhow::Result;
use tch::nn::Module;
use tch::{Device, Kind, Tensor};
use tch_parallel::Devices;
use tch_parallel::data_parallel::{DataParallelOptions, Step, scatter};

pub const THEME: Theme = Theme {
    title: "Dividing a batch",
    questions: &[
        Question {
            rows: &["S0.2"],
            text: "How are 6 rows shared among 2, 3 and 4 devices?",
            numbers: || {
                (2..=4)
                    .map(|devices| {
                        let sizes = chunk_sizes(6, devices)?;
                        Ok(format!("{devices} devices: {sizes:?}, {} at work", sizes.len()))
                    })
                    .collect()
            },
            answer: "A chunk has rows / devices rows, rounded up, so the last device may get none.",
        },
        Question {
            rows: &["S0.8"],
            text: "Do the outputs come back in the order of the inputs?",
            numbers: || {
                let outputs = tens(&[3, 1, 4, 1, 5, 9, 2], 3)?;
                Ok(vec![format!("[3, 1, 4, 1, 5, 9, 2] times 10 on 3 devices: {outputs:?}")])
            },
            answer: "Output row i belongs to input row i.",
        },
        Question {
            rows: &["S0.20"],
            text: "Can targets be divided with the inputs?",
            numbers: || {
                let pairs = pairs(10, 4)?;
                Ok(vec![format!("10 rows on 4 devices; first input and target of each: {pairs:?}")])
            },
            answer: "Everything that is scattered together is cut at the same rows.",
        },
        Question {
            rows: &["S2.9"],
            text: "Must the first device receive its chunk again?",
            numbers: || {
                let first = first_chunk()?;
                Ok(vec![
                    format!("the chunk begins where the batch does: {}", first.same_address),
                    format!("bytes copied to each of 2 devices: {:?}", first.bytes_copied),
                ])
            },
            answer: "No: its chunk is a view of the batch that it holds already.",
        },
    ],
};

/// Rows of each chunk.
pub fn chunk_sizes(rows: i64, devices: usize) -> Result<Vec<i64>> {
    let batch = Tensor::arange(rows, (Kind::Int64, Device::Cpu));
    let chunks = scatter(&batch, &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|chunk| chunk.size()[0]).collect())
}

/// Numbers multiplied by ten, each by the replica that gets it.
fn tens(numbers: &[i64], devices: usize) -> Result<Vec<i64>> {
    let options = DataParallelOptions::default();
    let (_vs, model) = wrapped(&Devices::cpu(devices)?, options, |_| 10)?;
    let outputs = model.forward(Tensor::from_slice(numbers), |factor, chunk| chunk * *factor)?;
    Ok(outputs.try_into()?)
}

/// The first row of each chunk of inputs, and of targets, both numbered from 0.
fn pairs(rows: i64, devices: usize) -> Result<Vec<(i64, i64)>> {
    let numbers = || Tensor::arange(rows, (Kind::Int64, Device::Cpu));
    let chunks = scatter(&(numbers(), numbers()), &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|(x, y)| (x.int64_value(&[0]), y.int64_value(&[0]))).collect())
}

struct FirstChunk {
    same_address: bool,
    bytes_copied: Vec<usize>,
}

fn first_chunk() -> Result<FirstChunk> {
    let devices = Devices::cpu(2)?;
    let (inputs, _) = batch(8);
    let chunks = scatter(&inputs, &devices, 0)?;
    let (_vs, model) = wrapped(&devices, DataParallelOptions::default(), mlp)?;
    let events = traced(&model, |model, _| {
        let _ = model.forward(inputs.shallow_clone(), |module, x| module.forward(&x))?;
        Ok(())
    })?;
    Ok(FirstChunk {
        same_address: chunks[0].data_ptr() == inputs.data_ptr(),
        bytes_copied: copied(&events, Step::Scatter),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_pytorchs() {
        assert_eq!(chunk_sizes(6, 2).unwrap(), [3, 3]);
        assert_eq!(chunk_sizes(6, 3).unwrap(), [2, 2, 2]);
        assert_eq!(chunk_sizes(6, 4).unwrap(), [2, 2, 2]);
        assert_eq!(chunk_sizes(10, 4).unwrap(), [3, 3, 3, 1]);
    }

    #[test]
    fn the_order_of_the_rows_is_kept() {
        assert_eq!(tens(&[5, 3, 8, 1], 3).unwrap(), [50, 30, 80, 10]);
    }

    #[test]
    fn inputs_and_targets_are_cut_at_the_same_rows() {
        assert_eq!(pairs(10, 4).unwrap(), [(0, 0), (3, 3), (6, 6), (9, 9)]);
    }

    #[test]
    fn the_first_chunk_is_a_view_and_the_second_a_copy() {
        let first = first_chunk().unwrap();
        assert!(first.same_address);
        // Four rows of six floats.
        assert_eq!(first.bytes_copied, [0, 4 * 6 * 4]);
    }
}
