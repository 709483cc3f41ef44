//! The ranks of a SyncBatchNorm together compute what PyTorch's BatchNorm1d, 2d or 3d computes for the whole batch.

use crate::prelude::*;

/// A few units in the last place of numbers up to 50, since each rank adds up its own rows first.
const ROUNDING: f32 = 1e-6 * 50.0;

/// The shape of a sample's channel: one number, a sequence, an image, a volume.
const SAMPLES: [&[&str]; 4] = [&[], &["9"], &["5", "6"], &["2", "3", "4"]];

fn expect_parity(ranks: usize) -> Result<()> {
    let rounding = if ranks == 1 { 0.0 } else { ROUNDING };
    SAMPLES.iter().try_for_each(|sample| {
        expect_parity_of(ranks, sample, rounding).with_context(|| format!("samples of {sample:?}"))
    })
}

fn expect_parity_of(ranks: usize, sample: &[&str], rounding: f32) -> Result<()> {
    let with_sample = |first| [first, "cpu"].into_iter().chain(sample.iter().copied());
    let job = Job::done(launch(ranks, &example("sync_batch_norm", with_sample("."))?)?)?;
    job.run(python("batch_norm", with_sample("python.safetensors"))?)?.expect_success()?;
    let rust = job.tensors_by_rank(ranks)?;
    let python = job.tensors("python.safetensors")?;

    let names = rust[0].keys().collect::<Vec<_>>();
    ensure!(names == python.keys().collect::<Vec<_>>(), "saved were {names:?}");
    for (name, expected) in &python {
        if name == "num_batches_tracked" {
            ensure!(rust.iter().all(|rank| rank[name] == *expected), "{name} differs");
            continue;
        }
        let found = whole(name, &rust)?;
        let expected = expected.floats()?;
        ensure!(found.len() == expected.len(), "{name} has {} numbers", found.len());
        let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
        // total_cmp sorts NaN as the largest.
        let largest = differences.max_by(f32::total_cmp).context("there are no numbers")?;
        ensure!(largest <= rounding, "{name} differs by {largest} with {ranks} ranks");
    }
    Ok(())
}

/// The result of all ranks together: rows are concatenated, the parameters' gradients are added up,
/// and variables must be the same on every rank.
fn whole(name: &str, ranks: &[BTreeMap<String, Tensor>]) -> Result<Vec<f32>> {
    let parts = ranks.iter().map(|rank| rank[name].floats()).collect::<Result<Vec<_>>>()?;
    if name.starts_with("output") || name.starts_with("inputs") {
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

cases! {
    fn one_rank_equals_python_to_the_last_bit() = expect_parity(1);
    fn two_ranks_equal_python() = expect_parity(2);
    fn three_ranks_of_unequal_batches_equal_python() = expect_parity(3);
}
