//! Dividing a batch, and putting outputs together.

use super::toy::*;
use anyhow::Result;
use tch::Tensor;
use tch_parallel::data_parallel::{Step, gather, scatter};
use tch_parallel::{Devices, LogicalDevice};

/// The number of rows of each chunk (S0.2, S0.13).
pub fn chunk_sizes(rows: i64, devices: usize) -> Result<Vec<i64>> {
    let chunks = scatter(&count(rows), &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|chunk| chunk.size()[0]).collect())
}

/// These numbers times ten, each multiplied by the replica that gets it (S0.8).
pub fn tens(numbers: &[i64], devices: usize) -> Result<Vec<i64>> {
    let (_vs, model) = wrapped(devices, |_| 10)?;
    let outputs = model.forward(Tensor::from_slice(numbers), |factor, chunk| chunk * *factor)?;
    Ok(outputs.try_into()?)
}

/// The first row of each chunk of inputs and of targets, both numbered from 0 (S0.20).
pub fn pairs(rows: i64, devices: usize) -> Result<Vec<(i64, i64)>> {
    let chunks = scatter(&(count(rows), count(rows)), &Devices::cpu(devices)?, 0)?;
    Ok(chunks.iter().map(|(x, y)| (x.int64_value(&[0]), y.int64_value(&[0]))).collect())
}

/// Whether the first chunk begins at the batch's address in memory, and the bytes of the batch that
/// are copied to each device (S2.9).
pub fn first_chunk() -> Result<(bool, Vec<usize>)> {
    let (inputs, _) = batch(8);
    let chunks = scatter(&inputs, &Devices::cpu(2)?, 0)?;
    let copied = copied(&step(8, 2, 0)?.events, Step::Scatter);
    Ok((chunks[0].data_ptr() == inputs.data_ptr(), copied))
}

/// The device without a replica that gathers the rows of two others, and these rows (S0.30).
pub fn gathered_outside() -> Result<(String, Vec<i64>)> {
    let parts = [(0, [1i64, 2]), (1, [3, 4])]
        .map(|(device, rows)| LogicalDevice::Cpu(device).copy_of(&Tensor::from_slice(&rows)));
    let [first, second] = parts;
    let gathered = gather(&[first?, second?], LogicalDevice::Cpu(2), 0)?;
    Ok((LogicalDevice::of(&gathered).to_string(), gathered.try_into()?))
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
        // Four rows of six floats.
        assert_eq!(first_chunk().unwrap(), (true, vec![0, 4 * 6 * 4]));
    }

    #[test]
    fn a_device_without_a_replica_can_gather() {
        assert_eq!(gathered_outside().unwrap(), ("cpu:2".into(), vec![1, 2, 3, 4]));
    }
}
