//! The ranks of a SyncBatchNorm together come to what PyTorch's BatchNorm2d makes of the whole batch.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tests::Job;
use tests::programs::{example, launch, python_batch_norm};
use tests::safetensors::{self, Tensor};

/// Each rank adds up its own rows first: a few units in the last place of numbers up to 50.
const ROUNDING: f32 = 1e-6 * 50.0;

fn expect_parity(ranks: usize) -> Result<()> {
    let job = Job::new()?;
    job.run(launch(ranks, &example("sync_batch_norm", ["."])?)?)?.expect_success()?;
    job.run(python_batch_norm(["python.safetensors"])?)?.expect_success()?;
    let rust = (0..ranks)
        .map(|rank| safetensors::read(&job.directory().join(format!("rank{rank}.safetensors"))))
        .collect::<Result<Vec<_>>>()?;
    let python = safetensors::read(&job.directory().join("python.safetensors"))?;

    let names = rust[0].keys().collect::<Vec<_>>();
    ensure!(names == python.keys().collect::<Vec<_>>(), "saved were {names:?}");
    for (name, expected) in &python {
        if name == "num_batches_tracked" {
            ensure!(rust.iter().all(|rank| rank[name] == *expected), "{name} differs");
            continue;
        }
        let found = whole(name, &rust)?;
        let expected = numbers(expected)?;
        ensure!(found.len() == expected.len(), "{name} has {} numbers", found.len());
        let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let largest = differences.fold(0.0, f32::max);
        ensure!(largest < ROUNDING, "{name} differs by {largest} with {ranks} ranks");
    }
    Ok(())
}

/// What the ranks have come to together: rows follow upon each other, gradients of parameters add
/// up, and variables are the same on every rank.
fn whole(name: &str, ranks: &[BTreeMap<String, Tensor>]) -> Result<Vec<f32>> {
    let parts = ranks.iter().map(|rank| numbers(&rank[name])).collect::<Result<Vec<_>>>()?;
    if name.starts_with("output") || name.starts_with("images") {
        return Ok(parts.concat());
    }
    let mut parts = parts.into_iter();
    let first = parts.next().context("there are no ranks")?;
    parts.try_fold(first, |mut sum, part| {
        if name.ends_with(".grad") {
            sum.iter_mut().zip(part).for_each(|(sum, number)| *sum += number);
        } else {
            ensure!(sum == part, "{name} is not the same on all ranks");
        }
        Ok(sum)
    })
}

fn numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    ensure!(tensor.dtype == "F32", "{} is no F32", tensor.dtype);
    let (numbers, _) = tensor.bytes.as_chunks();
    Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

#[test]
fn two_ranks_equal_python() -> Result<()> {
    expect_parity(2)
}

#[test]
fn three_ranks_of_unequal_batches_equal_python() -> Result<()> {
    expect_parity(3)
}
