//! Outputs and loss on another device than the first.

use super::small::{
    batch, difference, equality, gradients, mlp, reference, set_weights, waves, wrapped,
};
use super::{Question, Theme, lines};
use anyhow::Result;
use report::{Column, thousands};
use tch::nn::{Path, VarStore};
use tch::{Device, Kind, Tensor};
use tch_parallel::data_parallel::{DataParallel, DataParallelOptions, gather};
use tch_parallel::memory::{max_memory_allocated, memory_allocated, reset_peak_memory_stats};
use tch_parallel::nn::{LinearOptions, linear};
use tch_parallel::{Devices, LogicalDevice};

/// Two devices with replicas, and one without.
const ALL: [LogicalDevice; 3] =
    [LogicalDevice::Cpu(0), LogicalDevice::Cpu(1), LogicalDevice::Cpu(2)];

pub const THEME: Theme = Theme {
    title: "Outputs on another device",
    questions: &[
        Question {
            rows: &["S0.27", "S0.28", "S0.29"],
            text: "The first device is full: can outputs and loss go to another one?",
            numbers: || {
                let rows = ALL.map(|output| {
                    let mut row = vec![output.to_string()];
                    row.extend(peaks(ALL, output)?.map(thousands));
                    Ok(row)
                });
                lines(&PEAKS, rows)
            },
            answer: "Yes, with output_device, and the bytes go with them: it is a matter of space, \
                     not of time.",
        },
        Question {
            rows: &["S0.30"],
            text: "Must that device be one of those that have a replica?",
            numbers: || {
                let gathered = gathered_outside()?;
                Ok(vec![format!(
                    "rows of cpu:0 and cpu:1, gathered on {}: {:?}",
                    gathered.0, gathered.1
                )])
            },
            answer: "No: outputs are gathered on any device. What is checked is that the model is \
                     on the first one; but a device without a replica adds nothing but its memory.",
        },
        Question {
            rows: &["S0.31"],
            text: "Do gradients find their way back from there?",
            numbers: || {
                (0..=4)
                    .map(|output| {
                        let difference = from(LogicalDevice::Cpu(output), 4)?;
                        Ok(format!(
                            "4 devices, outputs on cpu:{output}: gradients {}",
                            equality(difference)
                        ))
                    })
                    .collect()
            },
            answer: "Yes: the way back of gathering is scattering, from wherever the outputs are.",
        },
    ],
};

const PEAKS: [Column; 4] = [
    Column::Left("outputs on"),
    Column::Right("peak bytes of cpu:0"),
    Column::Right("of cpu:1"),
    Column::Right("of cpu:2, without a replica"),
];

/// Outputs of a row: enough that they, and not the weights, fill the memory.
const OUTPUTS: i64 = 10_000;

/// The most bytes on each device in a training step of 64 rows. The first two have a replica.
fn peaks(all: [LogicalDevice; 3], output: LogicalDevice) -> Result<[usize; 3]> {
    let (devices, rows, features) = (Devices::new([all[0], all[1]])?, 64, 16);
    let build =
        |path: &Path<'_>| linear(path / "output", features, OUTPUTS, LinearOptions::default());
    let before = bytes(all, memory_allocated)?;
    let _on_first = devices.first().guard()?;
    let vs = VarStore::new(devices.first().into());
    let options = DataParallelOptions { output_device: Some(output), ..Default::default() };
    let model = DataParallel::with_options(&vs, &devices, options, build)?;
    set_weights(&vs);
    let inputs = waves(&[rows, features]);
    let labels = output.copy_of(&Tensor::arange(rows, (Kind::Int64, Device::Cpu)))?;
    for device in all {
        reset_peak_memory_stats(device)?;
    }
    let logits = model.f_forward_t(&inputs, true)?;
    let loss = {
        let _on_output = output.guard()?;
        logits.cross_entropy_for_logits(&labels)
    };
    drop(logits);
    model.backward(&loss)?;
    let peaks = bytes(all, max_memory_allocated)?;
    Ok([0, 1, 2].map(|index| peaks[index] - before[index]))
}

fn bytes(
    all: [LogicalDevice; 3],
    count: impl Fn(LogicalDevice) -> tch_parallel::Result<usize>,
) -> Result<[usize; 3]> {
    Ok([count(all[0])?, count(all[1])?, count(all[2])?])
}

/// Where a device without a replica has put the rows of two others together, and these rows.
fn gathered_outside() -> Result<(LogicalDevice, Vec<i64>)> {
    let parts = [(0, [1i64, 2]), (1, [3, 4])]
        .map(|(device, rows)| LogicalDevice::Cpu(device).copy_of(&Tensor::from_slice(&rows)));
    let [first, second] = parts;
    let gathered = gather(&[first?, second?], LogicalDevice::Cpu(2), 0)?;
    Ok((LogicalDevice::of(&gathered), gathered.try_into()?))
}

/// The difference between the gradients with the outputs on `output` and without DataParallel.
fn from(output: LogicalDevice, devices: usize) -> Result<f64> {
    let (inputs, labels) = batch(10);
    let options = DataParallelOptions { output_device: Some(output), ..Default::default() };
    let (vs, model) = wrapped(&Devices::cpu(devices)?, options, mlp)?;
    let logits = model.f_forward_t(&inputs, true)?;
    model.backward(&logits.cross_entropy_for_logits(&labels))?;
    difference(&gradients(&vs), &reference(10)?.1)
}

#[cfg(test)]
mod tests {
    use super::super::small::ROUNDING;
    use super::*;

    #[test]
    fn the_memory_goes_where_the_outputs_go() {
        // Devices of this test only: tests share the process.
        let all = [40, 41, 42].map(LogicalDevice::Cpu);
        let on = |index: usize| peaks(all, all[index]).unwrap();
        let (first, second, outside) = (on(0), on(1), on(2));
        let logits = 64 * OUTPUTS as usize * size_of::<f32>();
        assert!(first[0] >= first[1] + 2 * logits, "{first:?}");
        assert!(second[1] >= first[1] + 2 * logits, "{first:?} {second:?}");
        assert!(second[0] + logits <= first[0], "{first:?} {second:?}");
        assert!(outside[2] >= 3 * logits, "{outside:?}");
        assert_eq!((first[2], second[2]), (0, 0));
    }

    #[test]
    fn a_device_without_a_replica_can_gather() {
        assert_eq!(gathered_outside().unwrap(), (LogicalDevice::Cpu(2), vec![1, 2, 3, 4]));
    }

    #[test]
    fn gradients_are_the_same_from_every_output_device() {
        for output in 0..=4 {
            let difference = from(LogicalDevice::Cpu(output), 4).unwrap();
            assert!(difference <= ROUNDING, "cpu:{output}: {difference}");
        }
    }
}
